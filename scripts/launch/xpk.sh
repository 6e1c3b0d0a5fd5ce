#!/usr/bin/env bash
# Runs a command as a workload of a GKE cluster that xpk made, on TPU slices.
#
#   ./scripts/launch/xpk.sh CLUSTER WORKLOAD TPU_TYPE IMAGE [--slices N] [--dry-run]
#       [OPTION=VALUE of xpk ...] -- COMMAND...
#   ./scripts/launch/xpk.sh pods first v5litepod-16 REGISTRY/jax-rl:tpu --zone=us-west4-a \
#       -- jax-rl train gsm8k_qwen3 --dir /shared/first
#
# IMAGE is what scripts/docker/tpu.Dockerfile builds. --dry-run prints the line of xpk alone.
set -euo pipefail

fail_usage() {
  printf 'error: %s\nusage: %s\n' "$1" \
    "xpk.sh CLUSTER WORKLOAD TPU_TYPE IMAGE [--slices N] [--dry-run] [--zone=Z ...] -- COMMAND..." >&2
  exit 2
}

words=() options=() slices=1 dry_run=""
while (($#)); do
  case $1 in
    --) shift; break ;;
    --dry-run) dry_run=yes ;;
    --slices) (($# > 1)) || fail_usage "--slices needs a number"; slices=$2; shift ;;
    --slices=*) slices=${1#*=} ;;
    --*=*) options+=("$1") ;;
    -*) fail_usage "write options of xpk as --name=value: $1" ;;
    *) words+=("$1") ;;
  esac
  shift
done
((${#words[@]} == 4)) || fail_usage "CLUSTER, WORKLOAD, TPU_TYPE and IMAGE come before --"
[[ $slices =~ ^[1-9][0-9]*$ ]] || fail_usage "--slices is a number from 1, not $slices"
(($#)) || fail_usage "no command after --"

# xpk starts the command in a shell instead of the image's entry point, which sets the flags.
# shellcheck disable=SC2016
command='flags=$(python -m jax_rl.hosts.xla_flags tpu) && eval "$flags" && exec'$(printf ' %q' "$@")
line=(xpk workload create --cluster "${words[0]}" --workload "${words[1]}"
  --tpu-type "${words[2]}" --num-slices "$slices" --docker-image "${words[3]}"
  ${options[@]+"${options[@]}"} --command "$command")
printf '+' >&2
printf ' %q' "${line[@]}" >&2
printf '\n' >&2
[[ -n $dry_run ]] || exec "${line[@]}"
