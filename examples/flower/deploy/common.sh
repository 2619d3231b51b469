# Functions of up.sh. Each process has a name, the files NAME.pid and NAME.log in the federation's folder,
# and a process group of its own. `ps -ww` because `ps` otherwise cuts its lines at $COLUMNS.

running() { # running NAME: whether the process of that name is alive
    local pid
    pid=$(cat "$folder/$1.pid" 2> /dev/null) && [[ $(ps -ww -o stat=,args= -p "$pid") =~ ^[^Z].*(flower-super|nginx) ]]
}

start() { # start NAME WHERE COMMAND…: run the command in the background, in its folder, unless it is running already
    local name=$1 where=$2
    shift 2
    running "$name" && return
    (
        set -m
        cd "$where"
        "$@" > "$folder/$name.log" 2>&1 < /dev/null &
        echo $! > "$folder/$name.pid"
    )
}

wait_for() { # wait_for WHAT NAME SECONDS COMMAND…: until the command succeeds; fails if NAME ends or time is up
    local what=$1 name=$2 end=$((SECONDS + $3))
    shift 3
    until "$@" > /dev/null 2>&1; do
        if ! running "$name" || ((SECONDS >= end)); then
            tail -n 20 "$folder/$name.log" >&2
            echo "$what did not start. Look for the reason in $folder/*.log; down.sh stops what is still running" >&2
            exit 1
        fi
        sleep 0.2
    done
}

write_proxy_config() { # write_proxy_config TEMPLATE LISTEN SUPERLINK KEYS WHERE: the files of an nginx of our own
    local kind
    mkdir -p "$5/temp"
    sed -e "s|\${LISTEN}|$2|; s|\${SUPERLINK}|$3|; s|\${KEYS}|$4|; s|\${LOG}|$5/refused.log|" "$1" > "$5/fleet.conf"
    {
        ((EUID != 0)) || echo "user root; # the folder is closed to others"
        echo "daemon off; error_log stderr; pid nginx.pid;"
        echo "events { worker_connections 4096; }"
        echo "http {"
        for kind in client_body proxy fastcgi uwsgi scgi; do echo "    ${kind}_temp_path temp/$kind;"; done
        echo "    include fleet.conf;"
        echo "}"
    } > "$5/nginx.conf"
}
