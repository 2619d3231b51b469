#!/usr/bin/env bash
# A federation on this machine: a SuperLink, a proxy with TLS in front of it, and SuperNodes with a key each.
#
#   examples/flower/deploy/up.sh NODES [FOLDER]      PORT=8000 by default: nodes connect to it, the SuperLink takes
#                                                    PORT+1, node i takes PORT+2+i
#
# What is there already is kept, so a second call starts again what has died. down.sh ends it all.
set -euo pipefail
shopt -s extglob
deploy=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$deploy/common.sh"
PATH=$PATH:/usr/sbin # nginx
umask 077            # the folder holds private keys
nodes=${1:-} folder=${2:-federation} port=${PORT:-8000}
[[ $nodes =~ ^[1-9][0-9]*$ ]] || { echo "usage: up.sh NODES [FOLDER]: NODES is a number, like 10" >&2; exit 2; }
for tool in openssl ssh-keygen curl nginx flwr flower-superlink flower-supernode; do
    command -v $tool > /dev/null || { echo "$tool is missing; for Flower: pip install 'fedro[flower]'" >&2; exit 2; }
done
mkdir -p "$folder"
cd "$folder"
folder=$PWD keys=$PWD/keys server=127.0.0.1:$port link=127.0.0.1:$((port + 1))
mkdir -p keys server proxy/temp flwr

# 1. Certificates. The nodes know the proxy by server.crt and the authority that signed it; the SuperLink has link.crt,
#    which only the proxy, the server app and the operator's commands use.
new_key=(-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes)
if [[ ! -f $keys/server.crt ]]; then
    (
        cd "$keys"
        openssl req -x509 "${new_key[@]}" -days 365 -subj "/CN=fedro test CA" -keyout ca.key -out ca.crt
        openssl req "${new_key[@]}" -subj "/CN=localhost" -keyout server.key -out server.csr
        openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -out server.crt.new \
            -extfile <(echo "subjectAltName=DNS:localhost,IP:127.0.0.1")
        openssl req -x509 "${new_key[@]}" -days 365 -subj "/CN=127.0.0.1" -addext "subjectAltName=IP:127.0.0.1" \
            -keyout link.key -out link.crt
        mv server.crt.new server.crt
    ) 2> openssl.log
fi

# 2. The SuperLink, in a folder of its own, where the server app runs; and how `flwr` finds it
cat > flwr/config.toml << TOML
[superlink]
default = "deployed"

[superlink.deployed]
address = "$link"
root-certificates = "$keys/link.crt"
TOML
export FLWR_HOME=$folder/flwr
start superlink "$folder/server" flower-superlink --host 127.0.0.1 --port "${link#*:}" --database state.db \
    --enable-supernode-auth --disable-runtime-dependency-installation \
    --ssl-ca-certfile "$keys/link.crt" --ssl-certfile "$keys/link.crt" --ssl-keyfile "$keys/link.key"
wait_for "the SuperLink" superlink 60 curl -sf --cacert "$keys/link.crt" "https://$link/health"

# 3. The proxy, through which nodes reach the fleet API and nothing else
sed -e "s|@LISTEN@|$server|; s|@LINK@|${link#*:}|; s|@KEYS@|$keys|" "$deploy/nginx.conf.in" > proxy/nginx.conf
as_user="worker_processes 1;" # instead of one for each core
[[ $(id -u) != 0 ]] || as_user+=" user root;" # the keys' folder is closed to others
sed -i -e "s|^worker_processes auto;|$as_user|" proxy/nginx.conf
start proxy "$folder/proxy" nginx -p "$folder/proxy" -e stderr -c nginx.conf -g "daemon off;"
wait_for "the proxy" proxy 30 curl -s --cacert "$keys/ca.crt" "https://$server/"

# 4. A key for each node, of which the SuperLink is told; whoever has no such key is refused
register() { # register NODE
    local home=nodes/$1
    [[ -f $home/registered ]] && return
    mkdir -p "$home"
    cp "$keys/ca.crt" "$home"
    [[ -f $home/node.key ]] || ssh-keygen -q -t ecdsa -b 384 -N "" -C "" -f "$home/node.key"
    if ! flwr supernode register "$home/node.key.pub" > "$home/registered.new" 2>&1; then
        cat "$home/registered.new" >&2
        echo "$home/node.key.pub could not be registered at $link" >&2
        return 1
    fi
    mv "$home/registered.new" "$home/registered"
}
for ((i = 0; i < nodes; i++)); do register "node-$i"; done

# 5. The SuperNodes, each in a folder of its own with what a node is given: its key and ca.crt
for ((i = 0; i < nodes; i++)); do
    home=$folder/nodes/node-$i
    FLWR_HOME=$home/flwr start "node-$i" "$home" flower-supernode --superlink "$server" --root-certificates ca.crt \
        --auth-supernode-private-key node.key --port $((port + 2 + i)) --node-config "partition-id=$i num-partitions=$nodes"
done
for ((i = 0; i < nodes; i++)); do
    wait_for "node $i" "node-$i" 180 grep -q "SuperNode ID" "node-$i.log"
done
online() { # how many nodes the SuperLink itself says are online
    flwr supernode list --format json | grep -c '"online"' || true
}
all_online() { (($(online) >= nodes)); }
wait_for "at least one node" superlink 120 all_online

echo "$(online) nodes are online at $server; keys, logs and runs are in $folder. Now:"
echo "  FLWR_HOME=$FLWR_HOME flwr run examples/flower --stream --run-config 'clients=$nodes'"
