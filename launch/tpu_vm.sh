#!/usr/bin/env bash
# Runs on a Cloud TPU, one VM or a slice of many, from any machine with gcloud.
#
#   launch/tpu_vm.sh COMMAND [--env=FILE] [--dry_run]
#
#   continue    requests the TPU, sets it up, runs, and repeats what is needed
#               after a preemption, until the run has ended. You can interrupt
#               and repeat it; the run does not depend on it
#   create      requests the TPU and waits until it is ready
#   setup       installs code and packages on all workers
#   preflight   checks the run without training
#   run         starts the run on all workers
#   status      prints the state of the TPU and of each worker
#   logs        follows the log of worker 0; --worker=N: of another one;
#               --worker=all: of all
#   stop        saves and ends the run; continue will not start it again
#   delete      deletes the TPU, which ends its costs
#
# FILE [launch/my.env] is a copy of launch/example.env. --dry_run prints the
# commands without running them; for continue, those after a preemption.
# LAUNCH_POLL: seconds between two checks of the state [60].
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=launch/common.sh
. "$ROOT/launch/common.sh"

POLL=${LAUNCH_POLL:-60}
WORKER=0
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
  if [ "$CAPACITY" = on-demand ]; then
    capture tpus tpu-vm list "--filter=name~/$TPU_NAME\$" \
      '--format=value(state)'
  else
    capture tpus queued-resources list "--filter=name~/$TPU_NAME\$" \
      '--format=value(state.state)'
  fi
}

# read_worker_states: sets `answer` to one line per worker, `locost_jax: ...`.
read_worker_states() {
  capture workers \
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
  while read_state; do
    case $answer in
      ACTIVE | READY) return ;;
      SUSPENDED | FAILED | PREEMPTED | TERMINATED)
        report "$TPU_NAME is $answer: delete it, then create it again"
        return 1 ;;
    esac
    pause "$TPU_NAME is ${answer:-not created yet}"
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
    report_uncommitted
    run mkdir -p "$ROOT/build" &&
      run git -C "$ROOT" archive --format=tar.gz "--output=$code" HEAD &&
      tpus tpu-vm scp "$code" "$TPU_NAME:locost/code.tar.gz" --worker=all ||
      return
  fi
  workers "$(quote "${install[@]}")"
}

report_uncommitted() {
  [ -n "$DRY_RUN" ] || git -C "$ROOT" diff --quiet HEAD ||
    report 'note: copying the last commit, without uncommitted changes'
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
  read_state
  [ -n "$DRY_RUN" ] || echo "$TPU_NAME: ${answer:-does not exist}"
  case $answer in
    ACTIVE | READY)
      read_worker_states
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

# Reads the state, takes the next step, and repeats.
continue_run() {
  local failed_setups=0
  while :; do
    if ! read_state; then
      pause 'gcloud does not answer'
      continue
    fi
    case $answer in
      '') request ;;
      SUSPENDED | FAILED | PREEMPTED | TERMINATED)
        report "$TPU_NAME is $answer: deleting it, to create it again"
        delete || pause "$TPU_NAME could not be deleted" ;;
      ACTIVE | READY) continue_on_workers ;;
      STOP*) fail "$TPU_NAME is $answer: expected a TPU that nobody stopped;" \
        'start or delete it' ;;
      *) pause "$TPU_NAME is $answer" ;;
    esac
  done
}

# The next step on a ready TPU; exits when the run has ended.
continue_on_workers() {
  local line statuses=()
  if ! read_worker_states; then
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
        report "error: setup failed 3 times; $TPU_NAME still exists and costs" \
          "money"
        exit 1
      fi
      pause 'setup failed'
      return ;;
    *'locost_jax: running'*)
      pause 'running'
      return ;;
    *'locost_jax: stopped'*)
      report "the run was stopped; $TPU_NAME still exists and costs money"
      exit 143 ;;
    *'locost_jax: new'*)
      start || pause 'the run could not be started'
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
  combine_statuses "${statuses[@]}"
  if should_retry "$combined"; then
    pause "the run ended with status $combined: starting it again"
    start || pause 'the run could not be started'
    return
  fi
  report "the run ended with status $combined; $TPU_NAME still exists and" \
    "costs money"
  exit "$combined"
}

# --- The command line --------------------------------------------------------

main() {
  local word command='' ready=ACTIVE preempted=SUSPENDED
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
    on-demand) ready=READY preempted=TERMINATED ;;
    *) fail "$ENV_FILE: CAPACITY=$CAPACITY: expected spot, queued or on-demand"
  esac
  ASSUMED=("$ready" 'locost_jax: running')
  if [ "$command" = continue_run ]; then
    ASSUMED=("$preempted" '' "$ready" 'locost_jax: bare' "$ready"
             'locost_jax: new' "$ready" 'locost_jax: ended 0')
  fi
  "$command"
}

main "$@"
