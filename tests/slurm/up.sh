#!/bin/bash
# Start a private Slurm of two nodes (n1, n2) with stand-in GPUs on this machine: no systemd, no cgroups. Idempotent.
# As root on Debian 12 (Slurm 22.05); installs the packages that are missing, 7 s the first time, 0.5 s later.
#   tests/slurm/up.sh && . "${TMPDIR:-/tmp}/mgwfbp-slurm/env.sh"; sinfo; tests/slurm/down.sh
# Settings: SLURM_BASE (its folder), SLURM_PORT, NODE_CPUS, NODE_GPUS
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/daemons.sh"
PORT=${SLURM_PORT:-26817} CPUS=${NODE_CPUS:-16} GPUS=${NODE_GPUS:-2}
HOST=$(hostname -s)
[ "$(id -u)" = 0 ] || { echo "need root" >&2; exit 1; }

# 1. Packages
pmix() { compgen -G '/usr/lib/*/pmix2/lib/libpmix.so.2' | head -n 1; }
need=()
for pair in slurmctld:slurmctld slurmd:slurmd srun:slurm-client munged:munge; do
    command -v "${pair%:*}" >/dev/null || need+=("${pair#*:}")
done
[ -n "$(pmix)" ] || need+=(libpmix2)
if [ ${#need[@]} -gt 0 ]; then
    mkdir -p "$BASE"
    export DEBIAN_FRONTEND=noninteractive
    apt=(apt-get -qq -o DPkg::Lock::Timeout=120 -o Acquire::Retries=0 -o Acquire::http::Timeout=20)
    # RUNLEVEL=1 asks invoke-rc.d not to start daemons: there may be no policy-rc.d.
    if ! { "${apt[@]}" update && RUNLEVEL=1 "${apt[@]}" install -y --no-install-recommends "${need[@]}" \
        slurm-wlm-basic-plugins; } >"$BASE/apt.log" 2>&1; then
        tail -n 20 "$BASE/apt.log" >&2
        echo "apt-get cannot install ${need[*]}" >&2
        exit 1
    fi
fi
# Slurm's mpi_pmix.so opens libpmix.so, which is only in libpmix-dev.
[ -e "$(dirname "$(pmix)")/libpmix.so" ] || ln -s libpmix.so.2 "$(dirname "$(pmix)")/libpmix.so"

# 2. Files
mkdir -p "$BASE"/{etc,run,log,state,spool.n1,spool.n2,tmp.n1,tmp.n2,dev}
chmod 755 "$BASE" "$BASE"/{etc,run}
[ -s "$BASE/etc/munge.key" ] || (umask 077 && head -c 1024 /dev/urandom >"$BASE/etc/munge.key")
for ((g = 0; g < GPUS; g++)); do
    [ -c "$BASE/dev/gpu$g" ] || mknod "$BASE/dev/gpu$g" c 1 3 # clones of /dev/null
done
# FirstJobId: MPICH names shared memory by job and step, and finds that of a killed job of an earlier Slurm in its way.
# cred_expire: a requeued job waits until its old credential has expired, 120 s by default.
cat >"$SLURM_CONF.new" <<END
ClusterName=mgwfbp
SlurmctldHost=$HOST(127.0.0.1)
SlurmctldPort=$PORT
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$BASE/run/munge.socket,cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SwitchType=switch/none
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0
MpiDefault=none
ReturnToService=2
FirstJobId=$(($(stat -c %Y "$BASE/etc/munge.key") % 10000000 * 6 + 1))
SlurmdParameters=config_overrides
StateSaveLocation=$BASE/state
SlurmdSpoolDir=$BASE/spool.%n
TmpFS=$BASE/tmp.%n
SlurmctldPidFile=$BASE/run/slurmctld.pid
SlurmdPidFile=$BASE/run/slurmd.%n.pid
SlurmctldLogFile=$BASE/log/slurmctld.log
SlurmdLogFile=$BASE/log/slurmd.%n.log
SlurmctldTimeout=30
SlurmdTimeout=30
InactiveLimit=0
KillWait=5
MinJobAge=3600
GresTypes=gpu
NodeName=DEFAULT CPUs=$CPUS Boards=1 SocketsPerBoard=1 CoresPerSocket=$CPUS ThreadsPerCore=1 Gres=gpu:$GPUS
NodeName=n1 NodeHostname=$HOST NodeAddr=127.0.0.1 Port=$((PORT + 4))
NodeName=n2 NodeHostname=$HOST NodeAddr=127.0.0.1 Port=$((PORT + 5))
PartitionName=main Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES:4
END
mv "$SLURM_CONF.new" "$SLURM_CONF" # whole at any time: others may be reading it
printf 'AutoDetect=off\nNodeName=n[1-2] Name=gpu File=%s/dev/gpu[0-%d]\n' "$BASE" $((GPUS - 1)) >"$BASE/etc/gres.conf"
echo "export SLURM_CONF=$SLURM_CONF" >"$BASE/env.sh"

# 3. Daemons
start munged munged -F --key-file="$BASE/etc/munge.key" --socket="$BASE/run/munge.socket" --num-threads=2 \
    --pid-file="$BASE/run/munged.pid" --log-file="$BASE/log/munged.log" --seed-file="$BASE/run/munge.seed"
for _ in {1..50}; do
    munge -n -S "$BASE/run/munge.socket" >/dev/null 2>&1 && break
    alive munged || { cat "$BASE/log/munged.out" >&2; exit 1; }
    sleep .1
done
start slurmctld slurmctld -D
for _ in {1..100}; do
    scontrol ping 2>/dev/null | grep -q UP && break
    alive slurmctld || { tail -n 5 "$BASE/log/slurmctld.log" >&2; exit 1; }
    sleep .1
done
start slurmd.n1 slurmd -D -N n1
start slurmd.n2 slurmd -D -N n2

# 4. Ready?
for i in {1..200}; do
    if [ "$(sinfo -h -N -o '%N %T' 2>/dev/null | grep -cE ' (idle|mixed|allocated)$')" = 2 ]; then
        sinfo -N -o '%N %T %C %G'
        exit 0
    fi
    if ((i % 20 == 0)); then
        for n in n1 n2; do scontrol update nodename=$n state=resume 2>/dev/null || true; done
    fi
    sleep .1
done
echo "Slurm is not ready; see $BASE/log" >&2
sinfo -N -o '%N %T %E' >&2
exit 1
