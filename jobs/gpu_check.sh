#!/bin/bash
# Everything that needs a GPU, on one card, in at most ten minutes; prints one table, writes gpu_check.json, and that
# file is all that we need to see:
#   bash jobs/gpu_check.sh            on a node with a GPU, in an environment with mgwfbp[mpich,test,cuda13]
#   srun --gpus=1 --cpus-per-task=4 bash jobs/gpu_check.sh
# Each part has its own limit and is reported even if another fails; --parts doctor,losses takes some of them.
# Two ranks share the card: in EXCLUSIVE_PROCESS mode the parts that need that fail (nvidia-smi -c DEFAULT).
set -u
cd "$(dirname "$0")/.."
# Under srun the ranks of the checks are started by mpirun: they must not take the step's process manager for theirs.
for name in $(compgen -e | grep -E '^(PMI|PMIX|SLURM)_'); do unset "$name"; done
exec timeout --kill-after=10 600 "${PYTHON:-python3}" benchmarks/gpu_check.py "$@"
