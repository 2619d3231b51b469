#!/usr/bin/env bash
# End what up.sh has started; keys, certificates, logs and runs stay: examples/flower/deploy/down.sh [FOLDER]
set -euo pipefail
cd "${1:-federation}"

groups=" " # of processes: those that up.sh started, and those that the SuperLink put into groups of their own
for file in *.pid; do
    [[ -f $file ]] || continue
    pid=$(cat "$file")
    groups+=$(ps -eo pid=,ppid=,pgid=,args= | awk -v p="$pid" '/flower-super/ && ($1 == p || $2 == p) {printf "%s ", $3}')
done
left() { ps -eo pgid=,stat=,args= | awk -v g="$groups" 'index(g, " " $1 " ") && $2 !~ /^Z/ && /flower-super|flwr-/ {print $1}' | sort -u; }

for signal in TERM KILL; do
    for group in $(left); do kill -$signal -- "-$group" 2> /dev/null || true; done
    for ((i = 0; i < 20; i++)); do
        [[ -z $(left) ]] && break 2
        sleep 0.5
    done
done
[[ -z $(left) ]] || { echo "these process groups could not be ended:" $(left) >&2; exit 1; }
rm -f ./*.pid
echo "All processes of $PWD have ended."
