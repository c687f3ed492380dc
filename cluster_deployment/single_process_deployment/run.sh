#!/bin/bash
# One run per SLURM task, an array of them: what `cluster_run.py --backend slurm` writes and submits,
# with settings for this cluster in one place. On a login node, from the project's root:
#     cluster_deployment/single_process_deployment/run.sh inputs.txt
# Further words go to cluster_run.py: `run.sh inputs.txt --dry_run`, `run.sh inputs.txt --status`.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -ge 1 ] || { echo "usage: $0 inputs.txt [flags of cluster_run.py]" >&2; exit 2; }
PYTHON=${PYTHON:-python3}
# What one run gets. TIME may be short: a run whose time is over queues up again and goes on.
CPUS=${CPUS:-1}
TIME=${TIME:-24:00:00}
MEM=${MEM:-8G}
file=$1
shift
optional=()
[ -z "${PARTITION:-}" ] || optional+=(--partition "$PARTITION")
[ -z "${GPUS:-}" ] || optional+=(--gpus "$GPUS")

exec "$PYTHON" cluster_run.py --input_path "$file" --backend slurm \
    --cpus "$CPUS" --time "$TIME" --mem "$MEM" "${optional[@]}" "$@"
