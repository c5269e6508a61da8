#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Addresses over rdma: IPv6, link-local ones with their scope, a name with both kinds, two devices
# of one machine as servers of one name, connections divided between them, and the errors for an
# address without a device, or with its device in another network namespace.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/../clients/kit"

hosts=$(cat /etc/hosts) here=$(dirname "$0")
mend() {
  ip netns del other 2>/dev/null
  "$here/veth" >/dev/null
  umount /etc/hosts 2>/dev/null
  six rule add pref 0 lookup local
  for pref in 1 2 10 11 100; do six rule del pref $pref; done
  six addr del fd99::1/64 dev va 2>/dev/null; six addr del fd99::2/64 dev vb 2>/dev/null
  finish
}
trap mend EXIT
one=$AECONN_RDMA_ADDRESS two=$AECONN_RDMA_ADDRESS2
ip -6 addr add fd99::1/64 dev va nodad
ip -6 addr add fd99::2/64 dev vb nodad
# As in tests/softroce/veth for IPv4: over the wire, not over lo.
six() { ip -6 "$@"; }
six rule add pref 1 iif va lookup local
six rule add pref 2 iif vb lookup local
six rule add pref 10 from fd99::1 to fd99::2 lookup 101
six rule add pref 11 from fd99::2 to fd99::1 lookup 102
six rule add pref 100 lookup local
six rule del pref 0
six route add fd99::2/128 dev va src fd99::1 table 101
six route add fd99::1/128 dev vb src fd99::2 table 102
six neigh replace fd99::2 lladdr "$(cat /sys/class/net/vb/address)" dev va nud permanent
six neigh replace fd99::1 lladdr "$(cat /sys/class/net/va/address)" dev vb nud permanent
local_of() { ip -6 -o addr show dev "$1" scope link | sed -nE 's/.* (fe80[^/]*).*/\1/p'; }
has_local() { [ -n "$(local_of va)" ] && [ -n "$(local_of vb)" ] && ! ip -6 addr | grep -q tentative; }
soon has_local || fail 'link-local addresses' "$(ip addr)"
far=$(local_of va) near=$(local_of vb)
in_table() { grep -qsi "${1//:/.*:}" /sys/class/infiniband/"$2"/ports/1/gids/*; }
soon in_table fd99 rxb

start --listen "rdma://$one:7001" --listen "rdma://$two:7001" --listen 'rdma://[fd99::1]:7002' --listen "rdma://[$far%va]:7003" ||
  { total; exit; }
k() { timeout 60 "$kv_cli" -u "$@" 2>&1; }
is 'IPv6' PONG "$(k 'rdma://[fd99::1]:7002?source=fd99::2' PING)"
has 'IPv6 in path()' 'rdma rxb/1 gid [0-9]+ RoCEv2 \[fd99::2\]:[0-9]+ > \[fd99::1\]:7002 ' \
  "$(k 'rdma://[fd99::1]:7002?source=fd99::2' --verbose PING)"
is 'a link-local address with its scope' PONG "$(k "rdma://[$far%vb]:7003?source=$near%25vb" PING)"
has 'its path()' "rdma rxb/1 gid 0 RoCEv2 \\[$near%vb\\]:[0-9]+ > \\[$far%vb\\]:7003 " \
  "$(k "rdma://[$far%vb]:7003?source=$near%25vb" --verbose PING)"

# A name with both kinds: the IPv6 address has no listener on this port, so the other is used.
printf '%s\n%s both\n%s both\n%s pair\n%s pair\n' "$hosts" fd99::1 "$one" "$one" "$two" >"$work/hosts"
mount --bind "$work/hosts" /etc/hosts
is 'a name that has both kinds' PONG "$(k "rdma://both:7001" PING)"
is 'a name that has both kinds, the other first' PONG "$(k "rdma://both:7002" PING)"
is 'a name of two devices' PONG "$(k "rdma://pair:7001" PING)"

# One connecting program and a server with two devices: each device gets half of the connections.
if begin "$build/aeconn-proxy" --listen tcp://127.0.0.1:0 --connect 'rdma://pair:7001?spread=least'; then
  proxy=$server asks=()
  for ((i = 0; i < 6; i++)); do
    exec {ask}<>"/dev/tcp/127.0.0.1/${at##*:}" && asks+=("$ask")
    printf 'PING\r\n' >&"$ask" && read -r -t 60 answer <&"$ask"
    is "spread=least: connection $i" $'+PONG\r' "$answer"
  done
  list=$(k 'rdma://[fd99::1]:7002?source=fd99::2' CLIENT LIST)
  of() { grep -c " laddr=$1:7001 " <<<"$list"; }
  is 'spread=least: both devices have as many' '3 3' "$(of "$one") $(of "$two")"
  for ask in "${asks[@]}"; do exec {ask}>&-; done
  { kill "$proxy" && wait "$proxy"; } 2>/dev/null
fi

# The error lists the existing devices.
instead="here are rxa \\([^)]*${one}[^)]*\\), rxb \\([^)]*${two}[^)]*\\)"
refuses 'an address that nobody has: a listener' "10\\.88\\.0\\.1.*; $instead" \
  "$kv_server" --listen rdma://10.88.0.1:7004
has 'an address without a device: a client' "no RDMA device reaches 127.0.0.1:7004: No such device; $instead" \
  "$(k rdma://127.0.0.1:7004 PING)"
ip addr add 10.88.0.2/32 dev lo
refuses 'an address without a device: a listener' "no RDMA device has the address 10.88.0.2; $instead" \
  "$kv_server" --listen rdma://10.88.0.2:7004
ip addr del 10.88.0.2/32 dev lo

# Another network namespace: its own addresses belong to no device, and it sees none of the others.
ip netns add other
inside() { ip netns exec other "$@"; }
inside ip link set lo up
inside ip addr add 10.99.0.1/24 dev lo
away='here are rxa \(no address in this network namespace\), rxb \(no address in this network namespace\)'
refuses 'a namespace without its device: a listener' "no RDMA device has the address 10.99.0.1; $away" \
  ip netns exec other "$kv_server" --listen rdma://10.99.0.1:7004
has 'a namespace without its device: a client' "no RDMA device reaches 10.99.0.1:7004: No such device; $away" \
  "$(inside timeout 60 "$kv_cli" -u rdma://10.99.0.1:7004 PING 2>&1)"
has 'an address of the other namespace' "no RDMA device reaches $one:7001: Network is unreachable; $away" \
  "$(inside timeout 60 "$kv_cli" -u "rdma://$one:7001" PING 2>&1)"
is 'and the server outside goes on' PONG "$(k "rdma://$one:7001?source=$two" PING)"

# A device moves there with its interface: each namespace reports the devices that it can see, and
# which of them have an address in it.
rdma link delete rxb
ip link set vb netns other
inside ip addr add "$two/24" dev vb
inside ip link set vb up
inside rdma link add rxb type rxe netdev vb
refuses 'a device of another namespace: a listener' \
  "bind to $two:7004: Cannot assign requested address; here are rxa \([^)]*${one}[^)]*\), rxb \(no address in this network namespace" \
  "$kv_server" --listen "rdma://$two:7004"
has 'seen from the other namespace' \
  "no RDMA device reaches 127.0.0.1:7004: No such device; here are rxa \(no address in this network namespace[^)]*\), rxb \([^)]*$two" \
  "$(inside timeout 60 "$kv_cli" -u rdma://127.0.0.1:7004 PING 2>&1)"
is 'the server goes on with the other device' PONG "$(k "rdma://$one:7001" PING)"
inside rdma link delete rxb
inside ip link set vb netns 1
"$here/veth"
back() { [ "$(k "rdma://$two:7001?source=$one&connect-timeout=1s" PING)" = PONG ]; }
if soon back; then ok 'and with this one, when it is back'; else fail 'when it is back' "$(cat "$log"; rdma link; ip addr)"; fi
total
