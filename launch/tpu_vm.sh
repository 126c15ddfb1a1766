#!/usr/bin/env bash
# Runs on a Cloud TPU, one VM or a slice of many, from any machine with gcloud.
#
#   launch/tpu_vm.sh COMMAND [--env=FILE] [--dry_run]
#
#   continue    requests the TPU, sets it up, checks, runs, and repeats what is
#               needed after a preemption, until the run has ended, or has been
#               restarted RESTARTS times without a new checkpoint. You can
#               interrupt and repeat it; the run does not depend on it
#   setup       installs code and packages on all workers
#   preflight   checks the run without training
#   run         starts the run on all workers
#   status      prints the state of the TPU and of each worker
#   logs        follows the log of worker 0; --worker=N: of another one;
#               --worker=all: of all, each line after its host's name
#   stop        saves and ends the run; continue will not start it again
#   delete      deletes the TPU, which ends its costs
#
# FILE [launch/my.env] is a copy of launch/example.env. continue, setup and
# preflight first check the run on this machine (launch/check_run.py). --dry_run
# prints the commands without running them; for continue, those of a first start.
# LAUNCH_POLL: seconds between two checks of the state [60]. LAUNCH_MOST_SENT:
# KiB of files to send [1048576].
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=launch/common.sh
. "$ROOT/launch/common.sh"

POLL=${LAUNCH_POLL:-60}
WORKER=0
SENT=()  # files that the workers get besides the last commit
MOST_SENT=${LAUNCH_MOST_SENT:-1048576}
# The answers of gcloud that --dry_run assumes.
ASSUMED=()

# --- gcloud ------------------------------------------------------------------

# tpus WORD...: runs gcloud compute tpus for this project and zone.
tpus() {
  run gcloud compute tpus "$@" "--project=$PROJECT" "--zone=$ZONE"
}

# workers COMMAND: runs a command on all workers at once.
workers() {
  tpus tpu-vm ssh "$TPU_NAME" --worker=all "--command=$1"
}

# capture WORD...: sets `answer` to the output of a command; keeps its status.
capture() {
  if [ -z "$DRY_RUN" ]; then
    answer=$("$@")
    return
  fi
  "$@"
  answer=${ASSUMED[0]-}
  ASSUMED=("${ASSUMED[@]:1}")
}

# read_state: sets `answer` to the state of the TPU, '' if it does not exist.
read_state() {
  capture tpus queued-resources list "--filter=name~/$TPU_NAME\$" \
    '--format=value(state.state)'
}

# read_worker_states: sets `answer` to one line per worker, `locost_jax: ...`.
read_worker_states() {
  capture workers "$(quote bash locost/worker.sh status "$WORKDIR")\
 2>/dev/null || echo 'locost_jax: bare'"
}

pause() {
  report "$(date '+%H:%M:%S') $*"
  run sleep "$POLL"
}

# --- Checks before a TPU is requested ----------------------------------------

# check_run: checks the run as it will check itself; sets SENT, and what the
# pre-flight check expects.
check_run() {
  local found line status=0 kib
  case $WORKDIR in
    /* | gs://*) ;;
    *) fail "$ENV_FILE: WORKDIR=$WORKDIR: expected gs://, or a path from / on of" \
      'a disk that outlives the TPU' ;;
  esac
  found=$(
    ENVIRONMENT=() PREFLIGHT=yes  # XLA_FLAGS may be for TPUs only
    make_command "$PYTHON"
    cd "$ROOT" && "$PYTHON" launch/check_run.py "${COMMAND[@]:3}" \
      "--topology=$ACCELERATOR_TYPE"
  ) || status=$?
  case $status in
    0) ;;
    2) exit 2 ;;
    *) fail "PYTHON=$PYTHON could not check the run (status $status): expected a" \
      'Python of this machine with locost_jax: pip install -e .' ;;
  esac
  need "config=${CONFIG%%:*}"
  while IFS= read -r line; do
    case $line in
      'needs '*) need "config.${line#needs }" ;;
      'slice '*)
        line=${line#slice * }
        comment "the run is right for ${line% *} chips on ${line#* } hosts"
        EXPECT+=("devices=${line% *}" "hosts=${line#* }") ;;
    esac
  done <<EOF
$found
EOF
  [ "${#SENT[@]}" != 0 ] || return 0
  kib=$(cd "$ROOT" && du -skcL -- "${SENT[@]}" | sed -n '$s/[^0-9].*//p')
  [ "$kib" -le "$MOST_SENT" ] || fail "${SENT[*]}: $((kib / 1024)) MiB to send" \
    'to each worker: put them on a disk that the workers mount'
  comment "the workers get the last commit and ${SENT[*]}"
}

# need KEY=PATH: sends a file or directory of this checkout, unless the last
# commit has it. A path from / on is of a disk that the workers mount.
need() {
  local path=${1#*=}
  case $1 in
    config=/* | *=../* | *=*/../*) ;;
    *=/*) return ;;
    *)
      if [ -e "$ROOT/$path" ]; then
        [ -z "$(git -C "$ROOT" status --porcelain --ignored -- "$path" ||
          echo no checkout)" ] || SENT+=("$path")
        return
      fi ;;
  esac
  fail "--$1: no such file in $ROOT, from where it would be sent to the workers;" \
    'expected it there, or a path from / on, of a disk that the workers mount'
}

# --- One function for each command -------------------------------------------

request() {
  comment "request $TPU_NAME"
  tpus queued-resources create "$TPU_NAME" "--node-id=$TPU_NAME" \
    "--runtime-version=$RUNTIME_VERSION" \
    "--accelerator-type=$ACCELERATOR_TYPE" ${CREATE[@]+"${CREATE[@]}"}
}

# copy FILE NAME: copies a file to all workers.
copy() {
  tpus tpu-vm scp "$1" "$TPU_NAME:locost/$2" --worker=all
}

setup() {
  local code=$ROOT/build/locost_code.tar install
  install=(bash locost/worker.sh install "$JAX" "$EXTRAS")
  [ "${#SETUP[@]}" = 0 ] || install+=("${SETUP[@]}")
  comment 'install code and packages on all workers'
  [ -n "$DRY_RUN" ] || git -C "$ROOT" diff --quiet HEAD ||
    report 'note: copying the last commit, without uncommitted changes'
  workers 'mkdir -p locost' && copy "$ROOT/launch/worker.sh" worker.sh &&
    run mkdir -p "$ROOT/build" &&
    run git -C "$ROOT" archive "--output=$code" HEAD || return
  # A file that is in both is unpacked as it was sent.
  [ "${#SENT[@]}" = 0 ] ||
    run tar -rhf "$code" -C "$ROOT" -- "${SENT[@]}" || return
  copy "$code" code.tar && workers "$(quote "${install[@]}")"
}

preflight() {
  local PREFLIGHT=yes
  make_command ../venv/bin/python
  comment 'check the run on all workers'
  workers "$(quote bash locost/worker.sh check "${COMMAND[@]}")"
}

start() {
  comment 'start the run on all workers'
  make_command ../venv/bin/python
  workers "$(quote bash locost/worker.sh start "${COMMAND[@]}")"
}

status() {
  read_state
  [ -n "$DRY_RUN" ] || echo "$TPU_NAME: ${answer:-does not exist}"
  [ "$answer" = ACTIVE ] || return 0
  read_worker_states
  [ -n "$DRY_RUN" ] || printf '%s\n' "$answer"
}

logs() {
  local names=''
  # shellcheck disable=SC2016
  [ "$WORKER" != all ] || names=' | sed -u "s/^/$(hostname): /"'
  tpus tpu-vm ssh "$TPU_NAME" "--worker=$WORKER" \
    "--command=tail -n 100 -F locost/log$names"
}

stop() {
  workers 'bash locost/worker.sh stop'
}

delete() {
  comment "the next line deletes $TPU_NAME and its disks; WORKDIR stays"
  tpus queued-resources delete "$TPU_NAME" --force --quiet
}

# end STATUS MESSAGE: exits; the TPU stays.
end() {
  report "$2; $TPU_NAME still exists and costs money"
  exit "$1"
}

# Reads the state, takes the next step, and repeats.
continue_run() {
  local failed=0  # set-ups or checks, one after the other
  local restarts=0 newest='' saved=''  # checkpoints: now, at the last restart
  while :; do
    if ! read_state; then
      pause 'gcloud does not answer'
      continue
    fi
    case $answer in
      '') request ;;
      SUSPENDED | FAILED)
        count_restart "$TPU_NAME is $answer" 143
        report "$TPU_NAME is $answer: deleting it, to create it again"
        delete || pause "$TPU_NAME could not be deleted" ;;
      ACTIVE) continue_on_workers ;;
      *) pause "$TPU_NAME is $answer" ;;
    esac
  done
}

# count_restart REASON STATUS: exits with STATUS instead of another restart if
# the last RESTARTS have saved nothing.
count_restart() {
  [ "$newest" = "$saved" ] || restarts=0
  saved=$newest
  if [ "$restarts" = "$RESTARTS" ]; then
    report "error: $1, after $RESTARTS restarts without a new checkpoint" \
      "(newest: ${saved:-none}); look at logs --worker=all, and delete" \
      "$TPU_NAME, which may still cost money"
    exit "$2"
  fi
  restarts=$((restarts + 1))
}

# combine_statuses STATUS...: sets `combined`, one status for all hosts: 2
# (wrong input) if any host has it, else 143 (SIGTERM), else 75 (a hang), else
# the first other bad one, because hosts whose peers have gone end with any.
combine_statuses() {
  case " $* " in
    *' 2 '*) combined=2 ;;
    *' 143 '*) combined=143 ;;
    *' 75 '*) combined=75 ;;
    *)
      for combined in "$@" 0; do
        [ "$combined" = 0 ] || return 0
      done ;;
  esac
}

# The next step on a ready TPU; exits when the run has ended.
continue_on_workers() {
  local line statuses=() refused=()
  read_worker_states || answer=''  # of some workers only
  while IFS= read -r line; do
    case $line in
      'locost_jax: ended '*) statuses+=("${line##* }") ;;
      'locost_jax: refused '*) refused+=("${line##* }") ;;
      'locost_jax: saved '*) newest=${line#*saved } ;;
    esac
  done <<EOF
$answer
EOF
  case $answer in
    *'locost_jax: bare'*)
      if setup; then
        failed=0
      else
        failed=$((failed + 1))
        [ "$failed" != 3 ] || end 1 'error: setup failed 3 times'
        pause 'setup failed'
      fi ;;
    *'locost_jax: running'*) pause 'running' ;;
    *'locost_jax: stopped'*) end 143 'the run was stopped' ;;
    *'locost_jax: unchecked'* | *'locost_jax: refused'*)
      combine_statuses ${refused[@]+"${refused[@]}"}
      [ "$combined" = 0 ] || failed=$((failed + 1))
      [ "$combined" != 2 ] && [ "$failed" != 3 ] || end "$combined" \
        "error: the pre-flight check ended with status $combined"
      preflight || pause 'the pre-flight check failed' ;;
    *'locost_jax: new'*) start || pause 'the run could not be started' ;;
    *'locost_jax: ended'*)
      combine_statuses "${statuses[@]}"
      if ! should_retry "$combined"; then
        comment \
          "after a preemption: delete $TPU_NAME and begin again; WORKDIR stays"
        end "$combined" "the run ended with status $combined"
      fi
      count_restart "the run ended with status $combined" "$combined"
      pause "the run ended with status $combined: starting it again"
      start || pause 'the run could not be started' ;;
    *) pause 'not all workers answer' ;;
  esac
}

# --- The command line --------------------------------------------------------

main() {
  local word command=''
  for word in "$@"; do
    take_option "$word" && continue
    case $word in
      --worker=*) WORKER=${word#--worker=} ;;
      -*) fail "$word is not an option; --help lists them" ;;
      *)
        [ -z "$command" ] || fail "$command and $word: expected one command"
        command=$word ;;
    esac
  done
  case $command in
    setup | preflight | status | logs | stop | delete) ;;
    run) command=start ;;
    continue) command=continue_run ;;
    '') fail 'expected a command; --help lists them' ;;
    *) fail "$command is not a command; --help lists them" ;;
  esac
  read_env PROJECT ZONE TPU_NAME ACCELERATOR_TYPE RUNTIME_VERSION
  case $ACCELERATOR_TYPE in
    v5e-*) ACCELERATOR_TYPE=v5litepod-${ACCELERATOR_TYPE#v5e-} ;;  # gcloud's
  esac
  case $CAPACITY in
    spot) CREATE+=(--spot) ;;
    queued) ;;
    *) fail "$ENV_FILE: CAPACITY=$CAPACITY: expected spot or queued" ;;
  esac
  ASSUMED=(ACTIVE 'locost_jax: running')
  if [ "$command" = continue_run ]; then
    ASSUMED=('' ACTIVE 'locost_jax: bare' ACTIVE 'locost_jax: unchecked'
             ACTIVE 'locost_jax: new' ACTIVE 'locost_jax: ended 0')
  fi
  case $command in
    setup | preflight | continue_run) check_run ;;
  esac
  "$command"
}

main "$@"
