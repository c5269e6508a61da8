#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Programs compiled for AArch64, in the emulator: each says its version, and kv-server and kv-cli talk
# over tcp, unix, shared memory and tls, with each other and with programs of this machine (build/),
# so that both processors agree about every byte on the wire and in shared memory.
# tests/aarch64/run calls it, and has made build/aarch64/emulated.
set -u
export AECONN_BUILD=build/aarch64/emulated
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/../clients/kit"
version=$(sed -n 's/^VERSION *:= *//p' Makefile)
for program in kv-server kv-cli conn-perf aeconn-proxy aeconn-doctor; do
  has "$program says its version" "^$program $version" "$("$build/$program" --version 2>&1)"
done
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
  -addext subjectAltName=IP:127.0.0.1,DNS:localhost -keyout "$work/key.pem" -out "$work/cert.pem" 2>"$work/openssl" ||
  { cat "$work/openssl"; exit 1; }
value=$(head -c 100000 /dev/zero | tr '\0' v)
talk() {  # NAME SERVER CLIENT
  local url name place=$work/$RANDOM got
  kv_server=$2
  start --listen tcp://127.0.0.1:0 --listen "unix://$place.unix" --listen "shm://$place.shm" \
    --listen "tls://127.0.0.1:0?cert=$work/cert.pem&key=$work/key.pem" || return
  for url in "${urls[@]}"; do
    url=${url%%\?*}
    name="$1, ${url%%:*}"
    case $url in tls:*) url+="?ca=$work/cert.pem" ;; esac
    is "$name: SET" OK "$(timeout 60 "$3" -u "$url" SET "$name" "$value" 2>&1)"
    got=$(timeout 60 "$3" -u "$url" GET "$name" 2>&1)
    [ "$got" = "$value" ] && got=same
    is "$name: GET" same "$got"
  done
}
talk 'both on AArch64' "$build/kv-server" "$build/kv-cli"
if [ -x build/kv-server ] && [ -x build/kv-cli ]; then
  talk "a client of $(uname -m)" "$build/kv-server" "$PWD/build/kv-cli"
  talk "a server of $(uname -m)" "$PWD/build/kv-server" "$build/kv-cli"
else
  echo "SKIPPED: programs of this machine: build/kv-server and build/kv-cli are not built (make all)"
fi
total
