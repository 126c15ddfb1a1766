#!/usr/bin/env bash
# What a worker of a TPU does for tpu_vm.sh, which copies this file to
# ~/locost/worker.sh. Beside it lie code/, venv/, log, and what is known of the
# run: pid, attendant, status, stopped.
set -euo pipefail
cd "$(dirname "$0")"

# install JAX EXTRAS REPOSITORY REVISION SETUP...: an empty REPOSITORY stands
# for code.tar.gz.
install() {
  local jax=$1 extras=$2 repository=$3 revision=$4 line
  shift 4
  expect_no_run
  rm -rf ready code
  for line in "$@"; do
    bash -c "$line"
  done
  if [ -n "$repository" ]; then
    git clone --quiet "$repository" code
    git -C code checkout --quiet "$revision"
  else
    mkdir code
    tar -xzf code.tar.gz -C code
  fi
  # Images come with Pythons that are too old, or without venv.
  PATH=$HOME/.local/bin:$PATH
  command -v uv >/dev/null ||
    PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --quiet --user uv
  [ -x venv/bin/python ] || uv venv --quiet --seed --python 3.11 venv
  venv/bin/python -m pip install --quiet -e "./code[$extras]" "$jax"
  touch ready
}

is_alive() {
  local file
  [ ! -e status ] || return 1
  for file in attendant pid; do
    # A number alone could be another process by now.
    case $([ ! -e $file ] || ps -o args= -p "$(cat $file)") in
      *locost_jax.main*) return 0 ;;
    esac
  done
  return 1
}

# start COMMAND...: in the background, in a session of its own, which outlives
# the connection that asked for it.
start() {
  if is_alive; then
    say running
    return
  fi
  rm -f pid attendant status stopped
  echo "--- started $(date)" >> log
  setsid bash "$PWD/worker.sh" attend "$@" >> log 2>&1 < /dev/null &
  until [ -e pid ]; do sleep 0.1; done
  say started
}

# attend COMMAND...: runs it and notes how it ended.
attend() {
  local status=0 child
  echo $$ > attendant
  (cd code && exec "$@") &
  child=$!
  echo $child > pid.new && mv pid.new pid
  wait $child || status=$?
  echo "--- ended with status $status, $(date)"
  echo $status > status.new && mv status.new status
}

# stop: the run saves and ends, and is not to be started again.
stop() {
  touch stopped
  if is_alive; then
    kill -TERM "$(cat pid)"
  fi
}

# call COMMAND...: at once, while this connection stands.
call() {
  expect_no_run
  cd code
  exec "$@"
}

expect_no_run() {
  if is_alive; then
    echo 'error: a run is under way on this worker; stop it first' >&2
    exit 2
  fi
}

status() {
  if is_alive; then
    say running
  elif [ ! -e ready ]; then
    say bare
  elif [ -e status ] && [ "$(cat status)" = 0 ]; then
    say ended 0
  elif [ -e stopped ]; then
    say stopped
  elif [ -e status ]; then
    say ended "$(cat status)"
  elif [ -e pid ]; then
    say ended 75  # the machine went down with it
  else
    say new
  fi
}

# One line that is found among what else comes over the connection.
say() {
  echo "locost_jax: $*"
}

"$@"
