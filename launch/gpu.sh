#!/usr/bin/env bash
# Runs on GPUs: on this machine, or on several machines over ssh.
#
#   launch/gpu.sh [--env=FILE] [--dry_run] [--preflight | --setup]
#
#   --preflight   checks the run without training
#   --setup       installs locost_jax and JAX on every host
#
# FILE [launch/my.env] is a copy of launch/example.env. Without HOSTS in it, the
# run uses only this machine, with all its GPUs in one process. --dry_run prints
# the commands without running them.
#
# SIGTERM and ctrl-C are sent to all hosts: the run saves and ends. If the run
# fails on one host, the script ends the others: with SIGTERM, and with SIGKILL
# LAUNCH_GRACE seconds later [60]. The exit status is 2 (wrong input) if any
# host has it, else 143 (SIGTERM), 75 (a hang), or the first other bad one.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=launch/common.sh
. "$ROOT/launch/common.sh"

POLL=${LAUNCH_POLL:-1}
GRACE=${LAUNCH_GRACE:-60}
HOST=()  # the words of HOSTS

# --- Hosts over ssh ----------------------------------------------------------

# over_ssh NUMBER LINE
over_ssh() {
  run ssh -n -o BatchMode=yes -o ServerAliveInterval=30 "${HOST[$1]}" "$2"
}

# pid_file NUMBER: prints the name of the file with the process id of a host.
# The port distinguishes runs; the number, hosts with a shared home directory.
pid_file() {
  echo ".locost_jax-$PORT-$1.pid"
}

# start_on NUMBER: runs on a host until the end; writes the status to $ended.
start_on() {
  local status=0
  over_ssh "$1" "echo \$\$ > $(pid_file "$1") && cd $(quote "$DIRECTORY") &&\
 exec $(quote "${COMMAND[@]}" "--host=$1")" || status=$?
  [ -n "$DRY_RUN" ] || echo "$status" > "$ended/$1"
}

# send SIGNAL: signals the process on every host where the run has not ended,
# over a new connection, because a process outlives its connection.
send() {
  local number
  for number in "${!HOST[@]}"; do
    [ -e "$ended/$number" ] ||
      over_ssh "$number" "kill -$1 \$(cat $(pid_file "$number"))" || true &
  done
}

start_on_all() {
  local number status statuses=() received='' failed='' deadline='' left running
  local sent_on=''  # the status of a run that the forwarded signal ends
  if [ -n "$DRY_RUN" ]; then
    for number in "${!HOST[@]}"; do start_on "$number"; done
    return
  fi
  ended=$(mktemp -d)
  trap 'rm -rf "$ended"' EXIT
  trap 'received=INT' INT
  trap 'received=TERM' TERM HUP
  for number in "${!HOST[@]}"; do
    start_on "$number" &
  done
  left=("${!HOST[@]}")
  while [ "${#left[@]}" != 0 ]; do
    if [ -n "$received" ]; then
      send "$received"
      [ "$received" = INT ] && sent_on=130 || sent_on=143
      received=''
    fi
    running=("${left[@]}") left=()
    for number in "${running[@]}"; do
      if [ ! -s "$ended/$number" ]; then
        left+=("$number")
        continue
      fi
      status=$(cat "$ended/$number")
      case $status:$deadline in
        0:*) statuses+=(0) ;;
        143:?* | 137:?*) ;;  # ended by this script
        "$sent_on":*)  # ended by the forwarded signal, as the others will be
          statuses+=("$status")
          deadline=${deadline:-$((SECONDS + GRACE))} ;;
        *) statuses+=("$status") failed=yes ;;
      esac
      [ "$status" = 0 ] || report "${HOST[number]}: ended with status $status"
    done
    if [ -n "$failed" ] && [ -z "$deadline" ]; then
      send TERM
      deadline=$((SECONDS + GRACE))
    elif [ -n "$deadline" ] && [ "$SECONDS" -ge "$deadline" ]; then
      send KILL
      deadline=$((SECONDS + GRACE + 1))
    fi
    sleep "$POLL" &
    wait $! || true  # `wait`, unlike `sleep`, lets a trap run at once
  done
  combine_statuses "${statuses[@]}"
  exit "$combined"
}

# --- The command line --------------------------------------------------------

main() {
  local word setup='' number
  for word in "$@"; do
    take_option "$word" && continue
    case $word in
      --preflight) PREFLIGHT=yes ;;
      --setup) setup=yes ;;
      *) fail "$word is not an option; --help lists them" ;;
    esac
  done
  read_env PYTHON PORT
  DIRECTORY=${DIRECTORY:-$ROOT}
  # shellcheck disable=SC2153  # a name of the env file
  IFS=' ' read -r -a HOST <<EOF
$HOSTS
EOF
  run cd "$ROOT"
  expect_gpus "$((${#HOST[@]} ? ${#HOST[@]} : 1))"
  make_command "$PYTHON"
  [ -z "$setup" ] ||
    COMMAND=("$PYTHON" -m pip install -e ".[$EXTRAS]" "${JAX:-jax[cuda13]}")
  if [ "${#HOST[@]}" = 0 ]; then
    [ -n "$DRY_RUN" ] || exec "${COMMAND[@]}"  # which gets the script's signals
    quote "${COMMAND[@]}"
  elif [ -n "$setup" ]; then
    for number in "${!HOST[@]}"; do
      over_ssh "$number" "cd $(quote "$DIRECTORY") && $(quote "${COMMAND[@]}")"
    done
  else
    COMMAND+=("--coordinator=${HOST[0]}:$PORT" "--hosts=${#HOST[@]}")
    start_on_all
  fi
}

main "$@"
