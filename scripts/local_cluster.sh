#!/usr/bin/env bash
# One program as N processes on this machine, each with K CPU devices, over gloo: what a pod does,
# to try it here.
#
#   ./scripts/local_cluster.sh N [--devices K] COMMAND ...
#   ./scripts/local_cluster.sh 2 --devices 4 jax-rl train arithmetic --dir runs/two
#
# Every line of output begins with the number of its process. When one process fails, the others
# are ended, and its exit code is that of the script.
set -euo pipefail

usage() {
  printf 'error: %s\nusage: %s N [--devices K] COMMAND ...\n' "$1" "$0" >&2
  exit 2
}

is_count() {
  [[ "$1" =~ ^[1-9][0-9]{0,2}$ ]]
}

(($# > 0)) || usage "the number of processes is missing"
count=$1
shift
is_count "$count" || usage "the number of processes is '$count'; right is 1 to 999"
devices=1
if [[ "${1:-}" == --devices || "${1:-}" == --devices=* ]]; then
  if [[ "$1" == *=* ]]; then
    devices=${1#*=}
  else
    devices=${2:-}
    shift $(($# > 1 ? 1 : 0))
  fi
  shift
  is_count "$devices" || usage "--devices is '$devices'; right is 1 to 999"
fi
(($# > 0)) || usage "the command is missing"
[[ "$1" != -* ]] || usage "unknown option $1"
type -P "$1" >/dev/null || usage "the command '$1' is not found"

# Free now, and taken a moment later; ephemeral ports are left out, they come and go.
free_port() {
  local port
  while true; do
    port=$((10000 + RANDOM % 20000))
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      printf '%s\n' "$port"
      return
    fi
  done
}

port=$(free_port)
export JAX_COORDINATOR_ADDRESS="127.0.0.1:$port" JAX_NUM_PROCESSES="$count"
export JAX_PLATFORMS=cpu PYTHONUNBUFFERED=1
export XLA_FLAGS="${XLA_FLAGS:-} --xla_force_host_platform_device_count=$devices"

# label PREFIX: reads lines and puts the prefix before them; an interrupt is for the command.
label() {
  local line
  trap '' INT TERM
  while IFS= read -r line || [[ -n "$line" ]]; do
    printf '%s%s\n' "$1" "$line"
  done
}

# member I COMMAND ...: one process; its number and its exit code go to descriptor 3 at its end.
member() {
  local i=$1 codes
  shift
  set +e
  JAX_PROCESS_ID=$i "$@" 3>&- 2>&1 </dev/null | label "[$i] " 3>&-
  codes=("${PIPESTATUS[@]}")
  printf '%s %s\n' "$i" "${codes[0]}" >&3
}

# shellcheck disable=SC2329 # the traps call it
signal_all() {
  local group
  for group in "${groups[@]}"; do
    kill "-$1" -- "-$group" 2>/dev/null || true
  done
}

directory=$(mktemp -d)
mkfifo "$directory/ended"
exec 3<>"$directory/ended"
rm -r "$directory"

# Job control: each process is a group of its own, which can be ended with all that it started.
set -m
groups=()
for ((i = 0; i < count; i++)); do
  member "$i" "$@" 2>/dev/null & # its own words, such as "Killed"; the command's are in the pipe
  groups+=("$!")
done
trap 'interrupted=130; signal_all INT' INT
trap 'interrupted=143; signal_all KILL' TERM HUP
trap 'signal_all KILL' EXIT

# The first failure decides. The others then have some seconds to end with their own messages:
# they are killed and not terminated, since JAX takes SIGTERM for a notice of preemption.
ended=0
failed=""
interrupted=""
deadline=0
while ((ended < count)); do
  if read -r -t 1 i code <&3; then
    ended=$((ended + 1))
    if [[ "$code" != 0 && -z "$failed" ]]; then
      failed=$code
      deadline=$((SECONDS + 15))
      printf 'process %s failed with exit code %s\n' "$i" "$code" >&2
    fi
  fi
  if [[ -n "$interrupted" && "$deadline" == 0 ]]; then
    deadline=$((SECONDS + 15))
  fi
  if ((deadline > 0 && SECONDS >= deadline)); then
    break
  fi
done
exit "${interrupted:-${failed:-0}}"
