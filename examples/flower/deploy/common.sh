# Functions of up.sh: processes with a name, each with NAME.pid and NAME.log in the current folder and a process group of its own.

running() { # running NAME
    local pid
    pid=$(cat "$1.pid" 2> /dev/null) && [[ $(ps -o stat=,args= -p "$pid") == [!Z]*flower-super* ]]
}

start() { # start NAME COMMAND…
    local name=$1
    shift
    running "$name" && return
    (
        set -m
        "$@" > "$name.log" 2>&1 < /dev/null &
        echo $! > "$name.pid"
    )
}

wait_for() { # wait_for WHAT NAME SECONDS COMMAND…: until the command succeeds; an error if NAME ends or time is over
    local what=$1 name=$2 end=$((SECONDS + $3))
    shift 3
    until "$@" > /dev/null 2>&1; do
        if ! running "$name" || ((SECONDS >= end)); then
            tail -n 20 "$name.log" >&2
            echo "$what did not come up: $PWD/*.log may tell why; down.sh ends what runs" >&2
            exit 1
        fi
        sleep 0.5
    done
}
