#!/bin/bash
# Everything that needs a GPU, on one card, in at most four minutes; prints one table, writes gpu_check.json:
#   bash jobs/gpu_check.sh            on a node with a GPU, in an environment with mgwfbp[mpich,test,cuda13]
#   srun --gpus=1 --cpus-per-task=4 bash jobs/gpu_check.sh
set -u
cd "$(dirname "$0")/.."
# Under srun the ranks of the checks are started by mpirun: they must not take the step's process manager for theirs.
for name in $(compgen -e | grep -E '^(PMI|PMIX|SLURM)_'); do unset "$name"; done
exec timeout --kill-after=10 240 "${PYTHON:-python3}" benchmarks/gpu_check.py "$@"
