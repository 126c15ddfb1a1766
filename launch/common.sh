# shellcheck shell=bash
# What tpu_vm.sh, gpu.sh and slurm.sbatch share: reading the env file, making
# the command, running or printing it. Sourced; bash 3.2 (macOS) is enough.
#
# The names of the env file become variables that the scripts read:
# shellcheck disable=SC2034

DRY_RUN=''
PREFLIGHT=''
ENV_FILE=''

# --- Running, or printing ----------------------------------------------------

# run COMMAND...: runs it; with --dry_run prints it instead, to be pasted.
run() {
  if [ -n "$DRY_RUN" ]; then quote "$@"; else "$@"; fi
}

# run_last COMMAND...: the same in place of this shell, so that signals for the
# script reach the command.
run_last() {
  [ -n "$DRY_RUN" ] || exec "$@"
  quote "$@"
}

# quote WORD...: prints a line that a shell reads as exactly these words.
quote() {
  # In variables, because versions of bash disagree about quotes within ${//}.
  local word line='' mark="'" escaped="'\\''"
  for word in "$@"; do
    case $word in
      '' | *[!A-Za-z0-9_./:=,@%+-]*) word="'${word//$mark/$escaped}'" ;;
    esac
    line="$line${line:+ }$word"
  done
  printf '%s\n' "$line"
}

# report MESSAGE: progress; a dry run makes none.
report() {
  [ -n "$DRY_RUN" ] || printf '%s\n' "$*" >&2
}

# comment TEXT: of the next command of a dry run.
comment() {
  [ -z "$DRY_RUN" ] || printf '# %s\n' "$*"
}

# fail MESSAGE: something is wrong that another try cannot mend.
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 2
}

# --- Options -----------------------------------------------------------------

# The comment at the head of a script is its help.
show_help() {
  sed -n '2,/^[^#]/ { /^#SBATCH/d; /^#/ s/^# \{0,1\}//p; }' "$1"
}

# take_option WORD: whether WORD is an option of all scripts; then it is noted.
take_option() {
  case $1 in
    --dry_run) DRY_RUN=yes ;;
    --env=/*) ENV_FILE=${1#--env=} ;;
    --env=*) ENV_FILE=$PWD/${1#--env=} ;;
    *) return 1 ;;
  esac
}

# --- The env file ------------------------------------------------------------

CONFIG='' WORKDIR='' JAX='' EXTRAS='train'
PROJECT='' ZONE='' TPU_NAME='' ACCELERATOR_TYPE='' RUNTIME_VERSION=''
CAPACITY='' REPOSITORY='' REVISION=''
HOSTS='' PORT=8476 DIRECTORY='' PYTHON=python NODES=1 GPUS_PER_NODE=''
FLAG=() ENVIRONMENT=() CREATE=() SETUP=() SBATCH=()

# read_env NAME...: reads ENV_FILE; these names must have a value.
read_env() {
  local line name value number=0 seen=' ' at
  ENV_FILE=${ENV_FILE:-$ROOT/launch/my.env}
  [ -f "$ENV_FILE" ] || fail "$ENV_FILE: no such file: copy" \
    "launch/example.env to launch/my.env, or name one with --env=FILE"
  while IFS= read -r line || [ -n "$line" ]; do
    number=$((number + 1))
    at="$ENV_FILE, line $number"
    line=${line%"${line##*[![:space:]]}"}  # blanks, or a Windows line end
    case $line in
      '' | '#'*) continue ;;
      *=*) name=${line%%=*} value=${line#*=} ;;
      *) fail "$at: $line: expected NAME=value" ;;
    esac
    case $value in
      \"*\" | \'*\' | --*=\"*\" | --*=\'*\')
        fail "$at: $name: values are taken as they stand: expected no quotes" ;;
    esac
    case $name in
      FLAG | CREATE | SBATCH)
        case $value in
          --*) ;;
          *) fail "$at: $name=$value: expected $name=--flag=value" ;;
        esac ;;
      ENVIRONMENT)
        case $value in
          [A-Za-z_]*=*) ;;
          *) fail "$at: $name=$value: expected $name=NAME=value" ;;
        esac ;;
    esac
    case $name in
      FLAG) FLAG+=("$value") ;;
      ENVIRONMENT) ENVIRONMENT+=("$value") ;;
      CREATE) CREATE+=("$value") ;;
      SETUP) SETUP+=("$value") ;;
      SBATCH) SBATCH+=("$value") ;;
      CONFIG | WORKDIR | JAX | EXTRAS | PROJECT | ZONE | TPU_NAME | \
      ACCELERATOR_TYPE | RUNTIME_VERSION | CAPACITY | REPOSITORY | REVISION | \
      HOSTS | PORT | DIRECTORY | PYTHON | NODES | GPUS_PER_NODE)
        case $seen in
          *" $name "*) fail "$at: $name: expected once" ;;
        esac
        seen="$seen$name "
        printf -v "$name" %s "$value" ;;
      *) fail "$at: there is no name $name; launch/example.env has them all" ;;
    esac
  done < "$ENV_FILE"
  for name in CONFIG WORKDIR "$@"; do
    [ -n "${!name}" ] || fail "$ENV_FILE: $name is missing: expected" \
      "$name=value, as in launch/example.env"
  done
  case $WORKDIR in
    *://*) fail "$ENV_FILE: WORKDIR=$WORKDIR: expected a directory that all" \
      "hosts see, on a mounted file system; launch/README.md says how" ;;
  esac
}

# --- The command, and how it ended -------------------------------------------

# make_command PYTHON: sets COMMAND, the same on every host.
make_command() {
  COMMAND=()
  [ "${#ENVIRONMENT[@]}" = 0 ] || COMMAND=(env "${ENVIRONMENT[@]}")
  COMMAND+=("$1" -m locost_jax.main "--config=$CONFIG" "--workdir=$WORKDIR")
  [ "${#FLAG[@]}" = 0 ] || COMMAND+=("${FLAG[@]}")
  [ -z "$PREFLIGHT" ] || COMMAND+=(--preflight)
}

# judge STATUS...: sets `verdict`, the one status of several hosts. One that
# names a cause comes before one of a host that the others left alone: 2 (wrong
# input) first, then 143 (SIGTERM) and 75 (watchdog), then the first bad one.
judge() {
  local status
  verdict=0
  for status in "$@"; do
    case $status:$verdict in
      0:*) ;;
      2:*) verdict=2 ;;
      143:2 | 75:2 | 143:143 | 143:75 | 75:143 | 75:75) ;;
      143:* | 75:* | *:0) verdict=$status ;;
    esac
  done
}

# may_be_tried_again STATUS: whether the same command would go on.
may_be_tried_again() {
  [ "$1" = 143 ] || [ "$1" = 75 ]
}
