#!/usr/bin/env bash
# Runs a command on all workers of a Cloud TPU VM slice, with this checkout installed on each.
#
#   ./scripts/launch/tpu_pod.sh NAME ZONE [--project P] [--dry-run] -- COMMAND...
#   ./scripts/launch/tpu_pod.sh pod us-west4-a -- jax-rl train gsm8k_qwen3 --dir /mnt/shared/first
#
# The working tree goes along as it is (whatever git does not ignore) to ~/jax_rl of each worker,
# and the command runs there. --dry-run prints what would run, and runs none of it.
set -euo pipefail

fail_usage() {
  printf 'error: %s\nusage: tpu_pod.sh NAME ZONE [--project P] [--dry-run] -- COMMAND...\n' "$1" >&2
  exit 2
}

name="" zone="" project="" dry_run=""
while (($#)); do
  case $1 in
    --) shift; break ;;
    --dry-run) dry_run=yes ;;
    --project) (($# > 1)) || fail_usage "--project needs a value"; project=$2; shift ;;
    --project=*) project=${1#*=} ;;
    -*) fail_usage "unknown option $1 (the command of the workers comes after --)" ;;
    *)
      if [[ -z $name ]]; then name=$1
      elif [[ -z $zone ]]; then zone=$1
      else fail_usage "a third word before --: $1"
      fi
      ;;
  esac
  shift
done
[[ -n $name && -n $zone ]] || fail_usage "NAME and ZONE of the slice come first"
(($#)) || fail_usage "no command after --"

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
where=(--zone "$zone" --worker all)
[[ -z $project ]] || where+=(--project "$project")

run() {
  printf '+' >&2
  printf ' %q' "$@" >&2
  printf '\n' >&2
  [[ -n $dry_run ]] || "$@"
}

# Tracked or new, but not what was deleted and is not committed yet.
list_files() {
  git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
    [[ ! -e $file ]] || printf '%s\0' "$file"
  done
}

# Folders of code are removed first, so that no file of an earlier copy is left; runs/ stays.
install='set -e
mkdir -p ~/jax_rl && cd ~/jax_rl
rm -rf jax_rl sharding configs scripts
tar -xzf ~/jax_rl.tar.gz
source scripts/launch/_worker.sh
install_worker tpu'
start='set -e
cd ~/jax_rl
source scripts/launch/_worker.sh
enter_worker tpu
exec'$(printf ' %q' "$@")

archive=$(mktemp -d)/jax_rl.tar.gz
trap 'rm -rf "${archive%/*}"' EXIT
[[ -n $dry_run ]] || list_files | tar --null -T - -czf "$archive"

run gcloud compute tpus tpu-vm scp "$archive" "$name:jax_rl.tar.gz" "${where[@]}"
run gcloud compute tpus tpu-vm ssh "$name" "${where[@]}" --command "$install"
run gcloud compute tpus tpu-vm ssh "$name" "${where[@]}" --command "$start"
