#!/usr/bin/env bash
# Stop everything that up.sh has started. Keys, certificates, logs and runs stay.
#
#   examples/flower/deploy/down.sh [FOLDER]
set -euo pipefail
cd "${1:-federation}"
shopt -s nullglob
pid_files=(*.pid)

# All processes that have not ended: pid, parent, process group, state, command line.
# `-ww` because `ps` otherwise cuts the command line at $COLUMNS.
processes() { ps -ww -eo pid=,ppid=,pgid=,stat=,args= | awk '$4 !~ /^Z/'; }

# The process groups of the recorded processes and of all their descendants; the SuperLink puts some into groups of
# their own. A pid file may be old and its number taken by another program, hence the test of the command line.
groups=" $(processes | awk -v recorded=" $(cat /dev/null "${pid_files[@]}" | tr '\n' ' ')" '
    { parent[$1] = $2; group[$1] = $3 }
    /flower-super|flwr-|nginx:/ && (index(recorded, " " $1 " ") || index(recorded, " " $3 " ")) { ours[$1] }
    END {
        do {
            more = 0
            for (pid in parent) if (!(pid in ours) && parent[pid] in ours) { ours[pid]; more = 1 }
        } while (more)
        for (pid in ours) printf "%s ", group[pid]
    }')"
alive() { processes | awk -v groups="$groups" 'index(groups, " " $3 " ") { print $3 }' | sort -u; }
node_pids=" $(cat /dev/null node-*.pid | tr '\n' ' ')"
nodes_alive() { for group in $(alive); do [[ $node_pids != *" $group "* ]] || echo "$group"; done; }

stop() { # stop SIGNAL WHICH: signal these groups, and wait up to ten seconds for their end
    for group in $($2); do kill "-$1" -- "-$group" 2> /dev/null || true; done
    for ((i = 0; i < 50; i++)); do
        [[ -n $($2) ]] || return 0
        sleep 0.2
    done
}
stop TERM nodes_alive # while the SuperLink is there to hear that they leave; else it counts them as online for a minute
stop TERM alive
stop KILL alive

failed=0
for group in $(alive); do
    echo "Process group $group has not ended. End it with: kill -KILL -- -$group" >&2
    failed=1
done
for file in "${pid_files[@]}"; do
    pid=$(cat "$file")
    command=$(processes | awk -v pid="$pid" '$1 == pid { $1 = $2 = $3 = $4 = ""; print }')
    if [[ -n $command ]]; then
        echo "Process $pid of $PWD/$file is still running:$command" >&2
        echo "  If it belongs to this federation, end it with: kill -KILL $pid. If not, delete $file. Then call down.sh again." >&2
        failed=1
    fi
done
((failed == 0)) || exit 1
rm -f "${pid_files[@]}"
echo "All processes of $PWD have ended."
