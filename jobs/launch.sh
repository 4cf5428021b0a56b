# Sourced by the batch scripts: the job's environment, and LAUNCH, the words that start a command on every task.
#
# What your cluster needs stands here, once for all scripts. Load the MPI that mpi4py was installed against:
#module load python cuda openmpi
#
# MGWFBP_VENV      the virtual environment; without it the one that was active at sbatch, or else .venv (`make install`)
# MGWFBP_LAUNCHER  "srun --mpi=pmix", "srun --mpi=pmi2", "srun" or "mpirun"; without it what the environment's MPI needs

if [ -n "${MGWFBP_VENV:-}" ]; then
    . "$MGWFBP_VENV/bin/activate" || exit 2
elif [ -z "${VIRTUAL_ENV:-}" ] && [ -f .venv/bin/activate ]; then
    . .venv/bin/activate
fi
if ! command -v mgwfbp >/dev/null; then
    echo "no mgwfbp in this environment: set MGWFBP_VENV, see jobs/README.md" >&2
    exit 2
fi

# The library is asked without starting MPI, which a batch shell is no rank of.
mpi=$(
    python -c 'import mpi4py; mpi4py.rc.initialize = False; from mpi4py.MPI import Get_library_version as version
print(version().splitlines()[0].strip("\0"))'
)
pmis=$(srun --mpi=list 2>&1)
if [ -z "${MGWFBP_LAUNCHER:-}" ]; then
    case $mpi:$pmis in
        *CRAY\ MPICH*) MGWFBP_LAUNCHER="srun" ;;    # the site's own default fits it
        *Open\ MPI*pmix*) MGWFBP_LAUNCHER="srun --mpi=pmix" ;;
        *MVAPICH*pmi2* | *MPICH*pmi2*) MGWFBP_LAUNCHER="srun --mpi=pmi2" ;;
        *) MGWFBP_LAUNCHER="mpirun" ;;
    esac
fi
read -ra LAUNCH <<<"$MGWFBP_LAUNCHER"
case $MGWFBP_LAUNCHER:$mpi in
    # Seconds that ranks have to leave after the first: they would wait for one that died until the time limit.
    # With --kill-on-bad-exit they would be killed while they leave alike, and 143 be reported in place of 75 or 2.
    srun*) LAUNCH+=(--wait="${SLURM_WAIT:-10}") ;;
    # Bound to one core, the comm thread and backward would take turns on it.
    mpi*Open\ MPI*) LAUNCH+=(--bind-to none -n "$SLURM_NTASKS") ;;
    mpi*) LAUNCH+=(-n "$SLURM_NTASKS") ;;
esac
# Since Slurm 22.05 srun gives each task one core unless it is told otherwise.
[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
echo "job $SLURM_JOB_ID on $SLURM_JOB_NODELIST: ${LAUNCH[*]}"
