#!/usr/bin/env bash
# Commands of tpu_vm.sh on a TPU worker, as ~/locost/worker.sh, and one of
# slurm.sbatch. The same directory has code/, venv/, log, and the state of the run
# in files: checked (the pre-flight check's status), lock, pid, status, stopped.
set -euo pipefail
cd "$(dirname "$0")"

# install JAX EXTRAS SETUP...: installs packages, and the code of code.tar.
install() {
  local jax=$1 extras=$2 line
  shift 2
  expect_no_run
  rm -rf ready code checked
  for line in "$@"; do
    bash -c "$line"
  done
  mkdir code
  tar -xf code.tar -C code
  # The Python of an image may be too old, or without venv.
  PATH=$HOME/.local/bin:$PATH
  command -v uv >/dev/null ||
    PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --quiet --user uv
  [ -x venv/bin/python ] || uv venv --quiet --seed --python 3.11 venv
  venv/bin/python -m pip install --quiet -e "./code[$extras]" "$jax"
  touch ready
}

# is_alive: whether a process of the run holds its lock.
is_alive() {
  [ ! -e status ] && ! flock -n lock true
}

# start COMMAND...: runs in the background, in a new session, which outlives the
# connection.
start() {
  if is_alive; then
    say running
    return
  fi
  rm -f lock pid status stopped
  echo "--- started $(date)" >> log
  setsid flock lock bash worker.sh supervise "$@" >> log 2>&1 < /dev/null &
  until [ -e pid ]; do sleep 0.1; done
  say started
}

# supervise COMMAND...: runs it and writes its status to a file.
supervise() {
  local status=0 child
  (cd code && exec "$@") &
  child=$!
  echo $child > pid.new && mv pid.new pid
  wait $child || status=$?
  echo "--- ended with status $status, $(date)"
  echo $status > status.new && mv status.new status
}

# stop: lets the run save and end, and keeps it from being started again.
stop() {
  touch stopped
  if is_alive; then
    kill -TERM "$(cat pid)"
  fi
}

# check COMMAND...: runs a pre-flight check in the foreground, as part of this
# connection, and writes its status to a file.
check() {
  local status=0
  expect_no_run
  rm -f checked
  (cd code && exec "$@") || status=$?
  echo $status > checked
  return $status
}

expect_no_run() {
  if is_alive; then
    echo 'error: a run is active on this worker; stop it first' >&2
    exit 2
  fi
}

# newest WORKDIR: prints the manifest of its newest checkpoint, if there is one.
newest() {
  local files='checkpoints/*/manifest.json'
  cd "$OLDPWD"  # to which WORKDIR may be relative
  # A disk that hangs must not hang the answer.
  # shellcheck disable=SC2012,SC2086
  case $1 in
    gs://*) timeout 20 gcloud storage ls -l "$1/$files" "$1/*/$files" |
      grep gs:// | sort -k 2 | tail -n 1 | sed 's/.* //' ;;
    *) timeout 20 ls -td "$1"/$files "$1"/*/$files | head -n 1 ;;
  esac 2>/dev/null || true
}

# status WORKDIR
status() {
  local newest
  newest=$(newest "$1")
  [ -z "$newest" ] || say saved "$newest"
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
    say ended 75  # the machine went down during the run
  elif [ ! -e checked ]; then
    say unchecked
  elif [ "$(cat checked)" != 0 ]; then
    say refused "$(cat checked)"
  else
    say new
  fi
}

# say WORD...: prints a line that tpu_vm.sh recognises in the output of ssh.
say() {
  echo "locost_jax: $*"
}

"$@"
