#!/bin/bash
# Stop what up.sh started: its jobs, then its daemons, by their recorded process ids. Idempotent.
# With --purge its folder is deleted, too.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/daemons.sh"
if alive slurmctld; then
    jobs=$(timeout 5 squeue -h -o %A | sort -u)
    if [ -n "$jobs" ]; then
        timeout 5 scancel $jobs
        for _ in {1..60}; do [ -z "$(timeout 5 squeue -h -o %A)" ] && break; sleep .25; done
    fi
fi
for name in slurmd.n1 slurmd.n2 slurmctld munged; do stop "$name"; done
rm -f "$BASE"/run/munge.socket*
if [ "${1:-}" = --purge ] && [ -d "$BASE/etc" ]; then rm -rf "$BASE"; fi
exit 0
