#!/usr/bin/env bash
# The certificates of a federation's server. Run it again to renew what expires within 30 days.
#
#   examples/flower/deploy/certificates.sh FOLDER NAME      NAME is what nodes connect to: a host name or an IP address
#
#   ca.crt, ca.key          our own authority. Every node gets ca.crt; ca.key may stay on another machine.
#   server.crt, server.key  for the proxy, by which nodes know it
#   link.crt, link.key      for the SuperLink behind the proxy, at 127.0.0.1
set -euo pipefail
umask 077
folder=${1:-} name=${2:-}
[[ -n $folder && -n $name ]] || { echo "usage: certificates.sh FOLDER NAME: NAME is like server.example or 10.0.0.5" >&2; exit 2; }
command -v openssl > /dev/null || { echo "openssl is missing" >&2; exit 2; }
mkdir -p "$folder"
cd "$folder"
new_key=(-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes)
kind=DNS
[[ $name =~ ^[0-9.]+$|: ]] && kind=IP

expires() { ! openssl x509 -in "$1" -noout -checkend $((30 * 24 * 3600)) > /dev/null 2>&1; }
quietly() { "$@" 2> openssl.log || { cat openssl.log >&2; exit 1; }; }

if [[ ! -f ca.crt ]]; then
    quietly openssl req -x509 "${new_key[@]}" -days 3650 -subj "/CN=fedro CA" -keyout ca.key -out ca.crt.new
    mv ca.crt.new ca.crt
    echo "new: $PWD/ca.crt"
fi
if expires server.crt; then
    quietly openssl req "${new_key[@]}" -subj "/CN=$name" -keyout server.key.new -out server.csr
    quietly openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -out server.crt.new \
        -extfile <(echo "subjectAltName=$kind:$name,DNS:localhost,IP:127.0.0.1")
    mv server.key.new server.key
    mv server.crt.new server.crt
    echo "new: $PWD/server.crt. Reload nginx."
fi
if expires link.crt; then
    quietly openssl req -x509 "${new_key[@]}" -days 3650 -subj "/CN=127.0.0.1" -addext "subjectAltName=IP:127.0.0.1" \
        -keyout link.key.new -out link.crt.new
    mv link.key.new link.key
    mv link.crt.new link.crt
    echo "new: $PWD/link.crt. Restart the SuperLink, then nginx."
fi
