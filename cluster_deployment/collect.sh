#!/bin/bash
# Fetch results without what is large: no replay buffers, no checkpoints, no event files. What has come
# already is not sent again, so it can be run while the runs go on:
#     cluster_deployment/collect.sh me@login.cluster.edu:ray_results/ results/
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: $0 [HOST:]FOLDER DESTINATION" >&2; exit 2; }
command -v rsync >/dev/null || { echo "error: rsync is not installed here; install it first" >&2; exit 2; }
mkdir -p "$2"
exec rsync --recursive --links --times --compress --partial --prune-empty-dirs \
    --exclude 'checkpoints/' --exclude 'replay_buffer*' --exclude 'events.out.tfevents.*' \
    --exclude '.*.lock' --exclude '*.tmp' "${1%/}/" "${2%/}/"
