#!/bin/bash
# Several runs on one node, for clusters that hand out whole nodes: one SLURM job, whose runs share its
# cores. From the project's root, with the file of runs (inputs.txt or a sweep) as the argument:
#     sbatch cluster_deployment/concurrent_deployment/run.sh inputs.txt
# Further words go to cluster_run.py: `run.sh inputs.txt --workers 8 -- --total_timesteps 1e5`.
#SBATCH --job-name=interreplay
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=interreplay_%j.out
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:-.}"
[ $# -ge 1 ] || { echo "usage: sbatch $0 inputs.txt [flags of cluster_run.py]" >&2; exit 2; }
# PYTHON: the environment that the project is installed in.
PYTHON=${PYTHON:-python3}
file=$1
shift

# One run a core unless told otherwise: two threads for one run give fewer updates in total.
case " $* " in
    *" --workers "*) workers=() ;;
    *) workers=(--workers "${SLURM_CPUS_PER_TASK:-$(nproc)}") ;;
esac

# In the background, so that bash hears SLURM's signals at once and passes them on.
"$PYTHON" cluster_run.py --input_path "$file" "${workers[@]}" "$@" &
runs=$!
asked=
trap 'asked=USR1; kill -USR1 $runs' USR1
trap 'asked=TERM; kill -TERM $runs' TERM
code=0
wait $runs || code=$?
# A trapped signal ends `wait` early: the runs are still writing their checkpoints.
while kill -0 $runs 2>/dev/null; do
    code=0
    wait $runs || code=$?
done

# The time is over and not everything has finished: once more from the queue, from the checkpoints.
# (SLURM sees to it itself when it preempts the job.)
if [ "$asked" = USR1 ] && [ $code -ne 0 ] && [ -n "${SLURM_JOB_ID:-}" ]; then
    exec scontrol requeue "$SLURM_JOB_ID"
fi
exit $code
