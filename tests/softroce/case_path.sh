#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What programs report about a connection's path over rdma: kv-cli, kv-server's log and CLIENT INFO,
# conn-perf.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/../clients/kit"

urls=("rdma://$AECONN_RDMA_ADDRESS:7001") listen=(--listen "rdma://$AECONN_RDMA_ADDRESS:7001") over=('')
if [ -n "${AECONN_RDMA_ADDRESS6-}" ]; then
  listen+=(--listen "rdma://[$AECONN_RDMA_ADDRESS6]:7002") over+=('')
fi
if ! "$kv_server" --listen tls+rdma://127.0.0.1:1 2>&1 | grep -q 'leaves TLS out'; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=path \
    -keyout "$work/key.pem" -out "$work/cert.pem" 2>"$work/openssl.log" || cat "$work/openssl.log"
  listen+=(--listen "tls+rdma://$AECONN_RDMA_ADDRESS:7003" --tls-cert "$work/cert.pem" --tls-key "$work/key.pem")
  over+=('tls TLSv1\.3 TLS_[A-Z0-9_]+ [A-Za-z0-9]+ over ')
fi
start --loglevel verbose "${listen[@]}" || { total; exit; }
for i in "${!urls[@]}"; do
  url=${urls[i]} port=${urls[i]##*:}
  k() { timeout 30 "$kv_cli" -u "$url" --insecure "$@" 2>&1; }
  case $url in tls*) ;; *) k() { timeout 30 "$kv_cli" -u "$url" "$@" 2>&1; } ;; esac
  way='rdma [a-z0-9_]+/[0-9]+( gid [0-9]+)? (RoCEv1|RoCEv2|ib)'
  end='mtu [0-9]+( tc 0)? sl 0 window 64k peer aeconn [0-9]+\.[0-9]+\.[0-9]+'
  has "$url: kv-cli --verbose" "^kv-cli: ${over[i]}$way [^ ]+:[0-9]+ > [^ ]+:$port $end" "$(k --verbose PING)"
  has "$url: kv-server's log" "kv-server: client [0-9]+: ${over[i]}$way [^ ]+:$port > [^ ]+:[0-9]+ $end" "$(cat "$log")"
  shown=" path=${over[i]}$way [^ ]+:$port > [^ ]+:[0-9]+ $end"
  has "$url: CLIENT INFO" "$(sed 's/ path=/@/; s/ /_/g; s/@/ path=/' <<<"$shown")" "$(k CLIENT INFO)"
done
begin "$build/conn-perf" server --listen "rdma://$AECONN_RDMA_ADDRESS:7004"
has "conn-perf's header" "client, path: rdma [^ ]+ .* window 64k peer aeconn" \
  "$(timeout 60 "$build/conn-perf" client "$at" --warmup 0 --requests 20 2>&1)"
total
