#!/usr/bin/env bash
# A federation on this machine: a SuperLink, a proxy with TLS in front of it, and SuperNodes with a key each.
#
#   examples/flower/deploy/up.sh NODES [FOLDER]      PORT=8000 by default: nodes connect to PORT, the SuperLink
#                                                    takes PORT+1, node i takes PORT+2+i
#
# What is there already is kept, so a second call starts again what has died. down.sh ends it all.
set -euo pipefail
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
mkdir -p server flwr

# 1. Certificates, in a folder that neither the server app nor a node works in
"$deploy/certificates.sh" "$keys" localhost

# 2. The SuperLink and the server app, in a folder of their own; and how `flwr` finds them
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
wait_for "The SuperLink" superlink 60 curl -sf --cacert "$keys/link.crt" "https://$link/health"

# 3. The proxy, through which nodes reach the calls of SuperNodes and nothing else
write_proxy_config "$deploy/fleet.conf.template" "$server" "$link" "$keys" "$folder/proxy"
start proxy "$folder/proxy" nginx -p "$folder/proxy" -e stderr -c nginx.conf
wait_for "The proxy" proxy 30 curl -s --cacert "$keys/ca.crt" "https://$server/"

# 4. A key for each node, of which the SuperLink is told; whoever has no such key is refused
register() { # register NODE
    local home=nodes/$1
    [[ -f $home/registered.json ]] && return
    mkdir -p "$home"
    cp "$keys/ca.crt" "$home"
    [[ -f $home/node.key ]] || ssh-keygen -q -t ecdsa -b 384 -N "" -C "" -f "$home/node.key"
    if ! flwr supernode register "$home/node.key.pub" --format json > "$home/registered.json.new" 2>&1; then
        cat "$home/registered.json.new" >&2
        echo "$home/node.key.pub could not be registered at $link" >&2
        return 1
    fi
    mv "$home/registered.json.new" "$home/registered.json"
}
for ((i = 0; i < nodes; i++)); do register "node-$i"; done

# 5. The SuperNodes, each in a folder of its own with what a node is given: its key and ca.crt. The SuperLink counts a
#    node that was killed as online for up to a minute, and refuses it as its own double until then.
listed=$(flwr supernode list --format json)
online() { # online NODE: whether it was online when the list was made
    local id
    id=$(grep -o '[0-9]\{5,\}' "nodes/$1/registered.json" | head -n 1)
    [[ $listed =~ \"node-id\":\ *\"$id\"[^}]*\"status\":\ *\"online\" ]]
}
gone() { # gone NODE
    ! online "$1" || { listed=$(flwr supernode list --format json) && ! online "$1"; }
}
for ((i = 0; i < nodes; i++)); do
    running "node-$i" && continue
    wait_for "Node $i, which still counts as online," superlink 90 gone "node-$i"
    home=$folder/nodes/node-$i
    FLWR_HOME=$home/flwr start "node-$i" "$home" flower-supernode --superlink "$server" --root-certificates ca.crt \
        --auth-supernode-private-key node.key --port $((port + 2 + i)) --node-config "partition-id=$i num-partitions=$nodes"
done

# 6. Wait until each node has connected and the SuperLink says that it is online
connected() { # connected NODE
    grep -q "SuperNode ID" "$1.log" || return
    online "$1" || { listed=$(flwr supernode list --format json) && online "$1"; }
}
for ((i = 0; i < nodes; i++)); do wait_for "Node $i" "node-$i" 180 connected "node-$i"; done

echo "$nodes nodes are online at $server; keys, logs and runs are in $folder. Now:"
echo "  FLWR_HOME=$FLWR_HOME flwr run examples/flower --stream --run-config 'clients=$nodes'"
