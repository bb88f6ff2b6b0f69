#!/usr/bin/env bash
# Create, list, enter and delete TPU VMs.
#
#   ZONE=us-west4-a tpu_scripts/tpu.sh create   NAME TYPE [--spot]     a TPU VM now
#   ZONE=us-west4-a tpu_scripts/tpu.sh queue    NAME TYPE [--spot]     a TPU VM when there is one (a queued resource)
#   ZONE=us-west4-a tpu_scripts/tpu.sh state    NAME                   of the queued resource
#   ZONE=us-west4-a tpu_scripts/tpu.sh setup    NAME WHEEL             copy and run setup_vm.sh on every host
#                                                                      (when `state` says ACTIVE; pip wheel --no-deps -w dist .)
#   ZONE=us-west4-a tpu_scripts/tpu.sh ssh      NAME [COMMAND]         on host 0
#   ZONE=us-west4-a tpu_scripts/tpu.sh delete   NAME                   the TPU VM, and its queued resource where it has one
#
# TYPE is an accelerator type: v5litepod-16 is a v5e slice of 4x4 chips, v5litepod-64 one of 8x8. PROJECT, if set, is passed on.
# VERSION is the software of the VM; by default one that goes with tensorflow-tpu 2.20 installed by setup_vm.sh:
# tpu-ubuntu2204-base, or v2-alpha-tpuv5-lite (v5e), v2-alpha-tpuv5 (v5p), v2-alpha-tpuv6e (v6e). A slice of several hosts that
# is driven by its name (--strategy tpu:NAME) needs an image whose hosts run TensorFlow's server: VERSION=tpu-vm-tf-X.Y.Z-pod-pjrt.
#
# Tested with a gcloud that writes down what it is asked for; never run against Google Cloud.
set -euo pipefail

usage() { sed -n '2,13p' "$0" | sed 's/^# \{0,1\}//' >&2; exit 2; }

[ $# -ge 2 ] || usage
action=$1 name=$2
shift 2
: "${ZONE:?set ZONE, such as ZONE=us-west4-a}"
place=(--zone "$ZONE" ${PROJECT:+--project "$PROJECT"})

version() {
  case $1 in
    v5litepod-*) echo "${VERSION:-v2-alpha-tpuv5-lite}" ;;
    v5p-*) echo "${VERSION:-v2-alpha-tpuv5}" ;;
    v6e-*) echo "${VERSION:-v2-alpha-tpuv6e}" ;;
    *) echo "${VERSION:-tpu-ubuntu2204-base}" ;;
  esac
}

case $action in
  create)
    [ $# -ge 1 ] || usage
    type=$1
    shift
    gcloud compute tpus tpu-vm create "$name" "${place[@]}" --accelerator-type "$type" --version "$(version "$type")" "$@"
    ;;
  queue)
    [ $# -ge 1 ] || usage
    type=$1
    shift
    gcloud compute tpus queued-resources create "$name" --node-id "$name" "${place[@]}" \
      --accelerator-type "$type" --runtime-version "$(version "$type")" "$@"
    ;;
  state)
    gcloud compute tpus queued-resources describe "$name" "${place[@]}" --format 'value(state.state)'
    ;;
  setup)
    [ $# -ge 1 ] || usage
    here=$(cd "$(dirname "$0")" && pwd)
    gcloud compute tpus tpu-vm scp --recurse "$here" "$1" "$name:" "${place[@]}" --worker all
    gcloud compute tpus tpu-vm ssh "$name" "${place[@]}" --worker all \
      --command "bash tpu_scripts/setup_vm.sh $(basename "$1")"
    ;;
  ssh)
    gcloud compute tpus tpu-vm ssh "$name" "${place[@]}" --worker 0 ${1:+--command "$*"}
    ;;
  delete)
    if gcloud compute tpus queued-resources describe "$name" "${place[@]}" >/dev/null 2>&1; then
      gcloud compute tpus queued-resources delete "$name" "${place[@]}" --force --quiet
    else
      gcloud compute tpus tpu-vm delete "$name" "${place[@]}" --quiet
    fi
    ;;
  *) usage ;;
esac
