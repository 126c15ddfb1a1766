#!/usr/bin/env bash
# A run on a Cloud TPU, one VM or a slice of many, from any machine with gcloud.
#
#   launch/tpu_vm.sh COMMAND [--env=FILE] [--dry_run]
#
#   continue    all of it: asks for the TPU, sets it up, runs, and does what is
#               missing again after a preemption, till the run has ended. May be
#               broken off and given again; the run does not need it
#   create      asks for the TPU and waits until it is there
#   setup       code and packages on all workers
#   preflight   checks all of the run but its steps
#   run         starts the run on all workers
#   status      of the TPU, and what each worker does
#   logs        follows worker 0; --worker=N: another one, --worker=all: all
#   stop        the run saves and ends, and continue will not start it again
#   delete      gives the TPU back; nothing is paid for it any more
#
# FILE [launch/my.env] is a copy of launch/example.env. --dry_run prints the
# commands and runs none; of continue, those that follow a preemption.
# LAUNCH_POLL: seconds between two looks [60].
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=launch/common.sh
. "$ROOT/launch/common.sh"

POLL=${LAUNCH_POLL:-60}
WORKER=0
# What --dry_run takes for the answers of gcloud.
REHEARSED=()

# --- gcloud ------------------------------------------------------------------

# tpus WORD...: gcloud compute tpus, of this project and zone.
tpus() {
  run gcloud compute tpus "$@" "--project=$PROJECT" "--zone=$ZONE"
}

# workers COMMAND: on all of them at once.
workers() {
  tpus tpu-vm ssh "$TPU_NAME" --worker=all "--command=$1"
}

# ask WORD...: sets `answer` to what the command prints, and keeps its status.
ask() {
  if [ -z "$DRY_RUN" ]; then
    answer=$("$@")
    return
  fi
  "$@"
  answer=${REHEARSED[0]-}
  REHEARSED=("${REHEARSED[@]:1}")
}

# look: sets `answer` to the state of the TPU, '' if missing.
look() {
  if [ "$CAPACITY" = on-demand ]; then
    ask tpus tpu-vm list "--filter=name~/$TPU_NAME\$" '--format=value(state)'
  else
    ask tpus queued-resources list "--filter=name~/$TPU_NAME\$" \
      '--format=value(state.state)'
  fi
}

# ask_workers: sets `answer` to a line of each, `locost_jax: ...`.
ask_workers() {
  ask workers \
    "bash locost/worker.sh status 2>/dev/null || echo 'locost_jax: bare'"
}

pause() {
  report "$(date '+%H:%M:%S') $*"
  run sleep "$POLL"
}

# --- One function for each command -------------------------------------------

request() {
  local flags=("--accelerator-type=$ACCELERATOR_TYPE")
  [ "${#CREATE[@]}" = 0 ] || flags+=("${CREATE[@]}")
  case $CAPACITY in
    on-demand)
      tpus tpu-vm create "$TPU_NAME" "--version=$RUNTIME_VERSION" \
        "${flags[@]}"
      return ;;
    spot) flags+=(--spot) ;;
  esac
  tpus queued-resources create "$TPU_NAME" "--node-id=$TPU_NAME" \
    "--runtime-version=$RUNTIME_VERSION" "${flags[@]}"
}

create() {
  request
  while look; do
    case $answer in
      ACTIVE | READY) return ;;
      SUSPENDED | FAILED | PREEMPTED | TERMINATED)
        report "$TPU_NAME is $answer: delete it, and create it again"
        return 1 ;;
    esac
    pause "$TPU_NAME is ${answer:-not there yet}"
  done
}

setup() {
  local code=$ROOT/build/locost_code.tar.gz install
  install=(bash locost/worker.sh install "$JAX" "$EXTRAS" "$REPOSITORY"
           "$REVISION")
  [ "${#SETUP[@]}" = 0 ] || install+=("${SETUP[@]}")
  workers 'mkdir -p locost' &&
    tpus tpu-vm scp "$ROOT/launch/worker.sh" "$TPU_NAME:locost/worker.sh" \
      --worker=all || return
  if [ -z "$REPOSITORY" ]; then
    tell_uncommitted
    run mkdir -p "$ROOT/build" &&
      run git -C "$ROOT" archive --format=tar.gz "--output=$code" HEAD &&
      tpus tpu-vm scp "$code" "$TPU_NAME:locost/code.tar.gz" --worker=all ||
      return
  fi
  workers "$(quote "${install[@]}")"
}

tell_uncommitted() {
  [ -n "$DRY_RUN" ] || git -C "$ROOT" diff --quiet HEAD ||
    report 'note: the last commit is copied; what is not committed is not'
}

preflight() {
  PREFLIGHT=yes
  make_command ../venv/bin/python
  workers "$(quote bash locost/worker.sh call "${COMMAND[@]}")"
}

start() {
  make_command ../venv/bin/python
  workers "$(quote bash locost/worker.sh start "${COMMAND[@]}")"
}

status() {
  look
  [ -n "$DRY_RUN" ] || echo "$TPU_NAME: ${answer:-not there}"
  case $answer in
    ACTIVE | READY)
      ask_workers
      [ -n "$DRY_RUN" ] || printf '%s\n' "$answer" ;;
  esac
}

logs() {
  tpus tpu-vm ssh "$TPU_NAME" "--worker=$WORKER" \
    '--command=tail -n 100 -F locost/log'
}

stop() {
  workers 'bash locost/worker.sh stop'
}

delete() {
  comment "the next line deletes $TPU_NAME and its disks; WORKDIR stays"
  if [ "$CAPACITY" = on-demand ]; then
    tpus tpu-vm delete "$TPU_NAME" --quiet
  else
    tpus queued-resources delete "$TPU_NAME" --force --quiet
  fi
}

# Looks, does the one thing that is missing, and looks again.
continue_run() {
  local failed_setups=0
  while :; do
    if ! look; then
      pause 'gcloud does not answer'
      continue
    fi
    case $answer in
      '') request ;;
      SUSPENDED | FAILED | PREEMPTED | TERMINATED)
        report "$TPU_NAME is $answer: deleting it, to create it again"
        delete || pause 'it could not be deleted' ;;
      ACTIVE | READY) continue_on_workers ;;
      STOP*) fail "$TPU_NAME is $answer: expected a TPU that nobody stopped;" \
        'start or delete it' ;;
      *) pause "$TPU_NAME is $answer" ;;
    esac
  done
}

# The same on a TPU that is there; ends the script when the run has ended.
continue_on_workers() {
  local line statuses=()
  if ! ask_workers; then
    pause 'not all workers answer'
    return
  fi
  case $answer in
    *'locost_jax: bare'*)
      if setup; then
        failed_setups=0
        return
      fi
      failed_setups=$((failed_setups + 1))
      if [ "$failed_setups" = 3 ]; then
        report "error: setup failed 3 times; $TPU_NAME is still there, and paid"
        exit 1
      fi
      pause 'setup failed'
      return ;;
    *'locost_jax: running'*)
      pause 'the run is under way'
      return ;;
    *'locost_jax: stopped'*)
      report "the run was stopped; $TPU_NAME is still there, and paid"
      exit 143 ;;
    *'locost_jax: new'*)
      start || pause 'it could not be started'
      return ;;
  esac
  while IFS= read -r line; do
    case $line in
      'locost_jax: ended '*) statuses+=("${line##* }") ;;
    esac
  done <<EOF
$answer
EOF
  if [ "${#statuses[@]}" = 0 ]; then
    pause 'not all workers answer'
    return
  fi
  judge "${statuses[@]}"
  if may_be_tried_again "$verdict"; then
    pause "the run ended with status $verdict: it is started again"
    start || pause 'it could not be started'
    return
  fi
  report "the run ended with status $verdict; $TPU_NAME is still there, and paid"
  exit "$verdict"
}

# --- The command line --------------------------------------------------------

main() {
  local word command='' there=ACTIVE taken=SUSPENDED
  for word in "$@"; do
    take_option "$word" && continue
    case $word in
      --help) show_help "${BASH_SOURCE[0]}"; exit ;;
      --worker=*) WORKER=${word#--worker=} ;;
      -*) fail "$word is not an option; --help lists them" ;;
      *)
        [ -z "$command" ] || fail "$command and $word: expected one command"
        command=$word ;;
    esac
  done
  case $command in
    create | setup | preflight | status | logs | stop | delete) ;;
    run) command=start ;;
    continue) command=continue_run ;;
    '') fail 'expected a command; --help lists them' ;;
    *) fail "$command is not a command; --help lists them" ;;
  esac
  read_env PROJECT ZONE TPU_NAME ACCELERATOR_TYPE RUNTIME_VERSION CAPACITY
  JAX=${JAX:-jax[tpu]}
  case $CAPACITY in
    spot | queued) ;;
    on-demand) there=READY taken=TERMINATED ;;
    *) fail "$ENV_FILE: CAPACITY=$CAPACITY: expected spot, queued or on-demand"
  esac
  REHEARSED=("$there" 'locost_jax: running')
  if [ "$command" = continue_run ]; then
    REHEARSED=("$taken" '' "$there" 'locost_jax: bare' "$there"
               'locost_jax: new' "$there" 'locost_jax: ended 0')
  fi
  "$command"
}

main "$@"
