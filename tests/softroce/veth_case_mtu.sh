#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Two networks with different MTUs, 1024 and 4096 for RDMA: connections in both directions carry
# large values with the lesser MTU; a path-mtu that a port does not support gives a clear error.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/../clients/kit"

before=$(cat /sys/class/net/vb/mtu)
mend() { ip link set vb mtu "$before"; finish; }
trap mend EXIT
ip link set va mtu 4500 && ip link set vb mtu 1500
one=$AECONN_RDMA_ADDRESS two=$AECONN_RDMA_ADDRESS2  # va has the longer packets, vb the shorter
start --listen "rdma://$one:7001" --listen "rdma://$two:7002" || { total; exit; }
value=$(head -c 60000 /dev/urandom | base64 -w 0)
for way in "$one:7001?source=$two" "$two:7002?source=$one"; do
  k() { timeout 60 "$kv_cli" -u "rdma://$way" "$@" 2>&1; }
  is "$way: a large value there" OK "$(k SET large "$value")"
  is "$way: and back" "$value" "$(k GET large)"
  has "$way: the lesser MTU" ' mtu 1024 tc ' "$(k --verbose PING)"
  has "$way: at the server, too" '_mtu_1024_tc_' "$(k CLIENT INFO)"
done
refuses 'a path-mtu beyond the port'\''s' \
  'path-mtu=4096: port 1 of rxb takes 1024; the MTU of its network interface decides' \
  "$kv_cli" -u "rdma://$one:7001?source=$two&path-mtu=4096" PING
refuses 'a GID that is not there' "gid-index=200: port 1 of rxb has no GID there; it has .* $two RoCEv2" \
  "$kv_cli" -u "rdma://$one:7001?source=$two&gid-index=200" PING
refuses 'the GID of another address' 'gid-index=0 of rxb is fe80::.*, and this end is' \
  "$kv_cli" -u "rdma://$one:7001?source=$two&gid-index=0" PING
refuses 'a partition key that is not there' 'pkey-index=1: port 1 of rxb has no partition key there, of 1 in all' \
  "$kv_cli" -u "rdma://$one:7001?source=$two&pkey-index=1" PING
is 'the GID of the address itself' PONG "$("$kv_cli" -u "rdma://$one:7001?source=$two&gid-index=1&pkey-index=0&service-level=2" PING)"
total
