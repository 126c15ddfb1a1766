# shellcheck shell=bash
# Functions of tpu_vm.sh and slurm.sbatch: read the env file, build the command,
# run or print it. To be sourced; needs bash 3.2 (macOS) or newer.
#
# The names of the env file become variables for the scripts:
# shellcheck disable=SC2034

DRY_RUN=''
PREFLIGHT=''
ENV_FILE=''

# --- Running, or printing ----------------------------------------------------

# run COMMAND...: runs it; with --dry_run prints it instead, for pasting.
run() {
  if [ -n "$DRY_RUN" ]; then quote "$@"; else "$@"; fi
}

# quote WORD...: prints a line that a shell reads as exactly these words.
quote() {
  # In variables, because quotes inside ${//} depend on the version of bash.
  local word line='' mark="'" escaped="'\\''"
  for word in "$@"; do
    case $word in
      '' | *[!A-Za-z0-9_./:=,@%+-]*) word="'${word//$mark/$escaped}'" ;;
    esac
    line="$line${line:+ }$word"
  done
  printf '%s\n' "$line"
}

# report MESSAGE: prints progress; not in a dry run.
report() {
  [ -n "$DRY_RUN" ] || printf '%s\n' "$*" >&2
}

# comment TEXT: prints a comment before the next command of a dry run.
comment() {
  [ -z "$DRY_RUN" ] || printf '# %s\n' "$*"
}

# fail MESSAGE: exits with 2, for errors that another try cannot fix.
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 2
}

# --- Options -----------------------------------------------------------------

# take_option WORD: applies an option common to both scripts; fails for others.
# --help prints the comment at the head of the script.
take_option() {
  case $1 in
    --help)
      sed -n '2,/^[^#]/ { /^#SBATCH/d; /^#/ s/^# \{0,1\}//p; }' "$0"
      exit ;;
    --dry_run) DRY_RUN=yes ;;
    --env=/*) ENV_FILE=${1#--env=} ;;
    --env=*) ENV_FILE=$PWD/${1#--env=} ;;
    *) return 1 ;;
  esac
}

# --- The env file ------------------------------------------------------------

# The names that have one value, and the defaults.
NAMES=' CONFIG WORKDIR JAX EXTRAS RESTARTS PYTHON PROJECT ZONE TPU_NAME'
NAMES="$NAMES ACCELERATOR_TYPE RUNTIME_VERSION CAPACITY NODES GPUS_PER_NODE "
for name in $NAMES; do printf -v "$name" ''; done
JAX='jax[tpu]' EXTRAS=train RESTARTS=10 PYTHON=python CAPACITY=spot NODES=1
FLAG=() EXPECT=() ENVIRONMENT=() CREATE=() SETUP=() SBATCH=()

# read_env NAME...: reads ENV_FILE, in which these names must have a value.
read_env() {
  local line name value number=0 seen=' ' at
  ENV_FILE=${ENV_FILE:-$ROOT/launch/my.env}
  [ -f "$ENV_FILE" ] || fail "$ENV_FILE: no such file: copy" \
    "launch/example.env to launch/my.env, or name one with --env=FILE"
  while IFS= read -r line || [ -n "$line" ]; do
    number=$((number + 1))
    at="$ENV_FILE, line $number"
    line=${line%"${line##*[![:space:]]}"}  # strip blanks and Windows line ends
    case $line in
      '' | '#'*) continue ;;
      *=*) name=${line%%=*} value=${line#*=} ;;
      *) fail "$at: $line: expected NAME=value" ;;
    esac
    case $value in
      \"*\" | \'*\' | --*=\"*\" | --*=\'*\')
        fail "$at: $name: values are used literally: expected no quotes" ;;
    esac
    case $name=$value in
      FLAG=--* | CREATE=--* | SBATCH=--* | SETUP=* | EXPECT=[a-z]*=[1-9]* | \
      ENVIRONMENT=[A-Za-z_]*=*)
        eval "$name+=(\"\$value\")" && continue ;;
      FLAG=* | CREATE=* | SBATCH=*)
        fail "$at: $name=$value: expected $name=--flag=value" ;;
      EXPECT=*) fail "$at: $name=$value: expected $name=vocabulary=32100" ;;
      ENVIRONMENT=*) fail "$at: $name=$value: expected $name=NAME=value" ;;
    esac
    case $seen,$NAMES in
      *" $name "*,*) fail "$at: $name: expected once" ;;
      *" ${name// /-} "*) seen="$seen$name " && printf -v "$name" %s "$value" ;;
      *) fail "$at: unknown name $name; launch/example.env lists all names" ;;
    esac
  done < "$ENV_FILE"
  for name in CONFIG WORKDIR "$@"; do
    [ -n "${!name}" ] || fail "$ENV_FILE: $name is missing: expected" \
      "$name=value, as in launch/example.env"
  done
  case $RESTARTS in
    '' | *[!0-9]*) fail "$ENV_FILE: RESTARTS=$RESTARTS: expected a number" ;;
  esac
  case $WORKDIR in
    gs://*) ;;
    *://*) fail "$ENV_FILE: WORKDIR=$WORKDIR: expected gs:// or a directory" \
      'that all hosts see' ;;
  esac
}

# --- The command, and how it ended -------------------------------------------

# make_command PYTHON: sets COMMAND, which is the same on every host.
make_command() {
  COMMAND=()
  [ "${#ENVIRONMENT[@]}" = 0 ] || COMMAND=(env "${ENVIRONMENT[@]}")
  COMMAND+=("$1" -m locost_jax.main "--config=$CONFIG" "--workdir=$WORKDIR")
  [ "${#FLAG[@]}" = 0 ] || COMMAND+=("${FLAG[@]}")
  [ -z "$PREFLIGHT" ] ||
    COMMAND+=(--preflight ${EXPECT[@]+"${EXPECT[@]/#/--expect_}"})
}

# should_retry STATUS: whether the same command would continue the run.
should_retry() {
  [ "$1" = 143 ] || [ "$1" = 75 ]
}
