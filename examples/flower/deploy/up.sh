#!/usr/bin/env bash
# A federation on this machine: a SuperLink with TLS and node authentication, and SuperNodes with a key each.
#
#   examples/flower/deploy/up.sh NODES [FOLDER]      PORT=8000 by default; node i takes port PORT+1+i
#
# What is there already is kept, so a second call starts again what has died. down.sh ends it all.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
umask 077 # the folder holds private keys
nodes=${1:-} folder=${2:-federation} port=${PORT:-8000}
[[ $nodes =~ ^[1-9][0-9]*$ ]] || { echo "usage: up.sh NODES [FOLDER]: NODES is a number, like 10" >&2; exit 2; }
for tool in openssl ssh-keygen flwr flower-superlink flower-supernode; do
    command -v $tool > /dev/null || { echo "$tool is missing; for Flower: pip install 'fedro[flower]'" >&2; exit 2; }
done
mkdir -p "$folder"
cd "$folder"
folder=$PWD server=127.0.0.1:$port

# 1. A certificate authority, and the server's certificate
new_key=(-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes)
if [[ ! -f server.crt ]]; then
    openssl req -x509 "${new_key[@]}" -days 365 -subj "/CN=fedro test CA" -keyout ca.key -out ca.crt 2> openssl.log
    openssl req "${new_key[@]}" -subj "/CN=localhost" -keyout server.key -out server.csr 2>> openssl.log
    openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -out server.crt.new \
        -extfile <(echo "subjectAltName=DNS:localhost,IP:127.0.0.1") 2>> openssl.log
    mv server.crt.new server.crt
fi

# 2. The SuperLink, and how `flwr` finds it
mkdir -p flwr
cat > flwr/config.toml << TOML
[superlink]
default = "deployed"

[superlink.deployed]
address = "$server"
root-certificates = "$folder/ca.crt"
TOML
export FLWR_HOME=$folder/flwr
start superlink flower-superlink --host 127.0.0.1 --port "$port" --database state.db --enable-supernode-auth \
    --ssl-ca-certfile ca.crt --ssl-certfile server.crt --ssl-keyfile server.key --disable-runtime-dependency-installation
wait_for "the SuperLink" superlink 60 curl -sf --cacert ca.crt "https://$server/health"

# 3. A key for each node, of which the SuperLink is told; whoever has no such key is refused
register() { # register NAME
    [[ -f $1.registered ]] && return
    [[ -f $1.key ]] || ssh-keygen -q -t ecdsa -b 384 -N "" -C "" -f "$1.key"
    if ! flwr supernode register "$1.key.pub" > "$1.registered.new" 2>&1; then
        cat "$1.registered.new" >&2
        echo "$1.key.pub could not be registered at $server" >&2
        return 1
    fi
    mv "$1.registered.new" "$1.registered"
}
for ((i = 0; i < nodes; i++)); do register "node-$i"; done

# 4. The SuperNodes
for ((i = 0; i < nodes; i++)); do
    FLWR_HOME=$folder/node-$i start "node-$i" flower-supernode --superlink "$server" --root-certificates ca.crt \
        --auth-supernode-private-key "node-$i.key" --port $((port + 1 + i)) --node-config "partition-id=$i num-partitions=$nodes"
done
for ((i = 0; i < nodes; i++)); do
    wait_for "node $i" "node-$i" 180 grep -q "SuperNode ID" "node-$i.log"
done

echo "$nodes nodes are online at $server; keys, logs and runs are in $folder. Now:"
echo "  FLWR_HOME=$FLWR_HOME flwr run examples/flower --stream --run-config 'clients=$nodes'"
