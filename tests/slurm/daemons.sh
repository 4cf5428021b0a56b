# Sourced by up.sh and down.sh: daemons by name, each recorded as "pid start-time", so that a number that has been given
# to another process since is never taken for ours.
BASE=${SLURM_BASE:-${TMPDIR:-/tmp}/mgwfbp-slurm}
export SLURM_CONF=$BASE/etc/slurm.conf PATH=$PATH:/usr/sbin:/sbin

# The time since boot at which process $1 started; empty for one that is dead or a zombie.
started() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | awk '$1 != "Z" { print $20 }'; }

# Does the daemon $1 run?
alive() {
    local pid when
    read -r pid when 2>/dev/null <"$BASE/run/$1.rec" && [ -n "$when" ] && [ "$(started "$pid")" = "$when" ]
}

# Start the daemon $1 by the command that follows, unless it runs.
start() {
    local name=$1 pid
    shift
    alive "$name" && return 0
    setsid "$@" >>"$BASE/log/$name.out" 2>&1 </dev/null &
    pid=$!
    sleep 0.1
    echo "$pid $(started $pid)" >"$BASE/run/$name.rec"
    echo "started $name pid $pid"
}

# Stop the daemon $1, if it runs.
stop() {
    local name=$1 pid when
    if alive "$name"; then
        read -r pid when <"$BASE/run/$name.rec"
        kill "$pid" 2>/dev/null
        for _ in {1..200}; do alive "$name" || break; sleep .1; done # slurmctld takes 5 s
        if alive "$name"; then kill -9 "$pid"; sleep .2; fi
        echo "stopped $name pid $pid"
    fi
    rm -f "$BASE/run/$name.rec"
}
