#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# aeconn-doctor between two ends: a path with the lesser MTU of two, firewalls that drop UDP 4791
# (tc, nftables), one that drops long packets, a peer whose link is down, and no route.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/../clients/kit"
one=$AECONN_RDMA_ADDRESS two=$AECONN_RDMA_ADDRESS2  # the other end is on va, this one on vb
doctor() { timeout 60 "$build/aeconn-doctor" "$@" 2>&1; }
before=$(cat /sys/class/net/va/mtu)
# Packets are dropped as they enter the far end: if a host's own rules dropped outgoing packets,
# soft-RoCE of Linux 6.1 would retransmit them without end, and rdma_destroy_id() would wait for it.
open() { tc qdisc del dev va clsact 2>/dev/null; }
mend() {
  open
  nft delete table ip doctor 2>/dev/null
  ip link set va mtu "$before" up
  "$(dirname "$0")/veth" "$before"
  finish
}
trap mend EXIT
first_failure() {  # NAME ROW REMEDY URL
  local out status
  out=$(doctor --timeout 2 "$4"); status=$?
  is "$1: status" 1 $status
  has "$1: the row" "$2" "$(grep '^FAIL' <<<"$out")"
  has "$1: what to do" "$3" "$(tail -n 1 <<<"$out")"
}

begin "$build/aeconn-doctor" --serve "rdma://$one:7001" || { total; exit; }
soon grep -q 'listening on tcp' "$log"
url="rdma://$one:7001?source=$two"
out=$(doctor "$url"); status=$?
is 'two ends: status' 0 $status
has 'two ends: rows' "ok    rdma: route: $one is reached from $two, which is rxb/1
ok    rdma: path: rdma rxb/1 .* mtu 4096 .*; an echo answered
(ok|note)  +beside tcp: rdma takes " "$out"

ip link set va mtu 1500
# The far end queries its device for the MTU once per second.
crosses() { out=$(doctor "$url"); status=$?; [ $status = 0 ]; }
soon crosses
is 'MTU 1024 beside 4096: status' 0 $status
[ $status = 0 ] || echo "$out"
has 'MTU 1024 beside 4096: the path' 'note  rdma: path: .* mtu 1024 .*; MTU 1024, and rxb/1 could take 4096' "$out"
has 'MTU 1024 beside 4096: the port' 'note  mtu: rxa/1 1024, as va has 1500, rxb/1 4096' "$out"
ip link set va mtu "$before"

url+='&connect-timeout=1s'
modprobe -a sch_ingress cls_u32 act_gact 2>/dev/null
drop() { tc filter add dev va ingress protocol ip u32 match ip protocol 17 0xff "$@" action drop; }
if ! tc qdisc add dev va clsact || ! drop match ip dport 4791 0xffff; then
  echo 'SKIPPED firewalls: this kernel or tc has no clsact or u32'
else
  first_failure 'a firewall' 'FAIL  rdma: connect: .*' \
    'The first failure is rdma: connect. What to do: tcp reaches the host, .* UDP port 4791' "$url"
  open
  # Drops packets of 4 KiB and more: tests the bit of 4096 in the IP packet's length.
  tc qdisc add dev va clsact && drop match ip dport 4791 0xffff match u16 0x1000 0x1000 at 2
  first_failure 'long packets are eaten' 'FAIL  rdma: 64 KiB there and back: ' \
    'the handshake succeeds but data is lost: .* smaller MTU' "$url&retry-count=2"
  open
fi

# nftables, the usual firewall on a server.
modprobe -a nf_tables nf_tables_ipv4 nft_chain_filter 2>/dev/null
if ! nft 'add table ip doctor' ||
  ! nft 'add chain ip doctor in { type filter hook input priority 0; }' ||
  ! nft 'add rule ip doctor in iifname "va" udp dport 4791 drop'; then
  echo 'SKIPPED a firewall of nftables: this kernel or machine has none'
else
  first_failure 'a firewall of nftables' 'FAIL  rdma: connect: .*' \
    'The first failure is rdma: connect. What to do: tcp reaches the host, .* UDP port 4791' "$url"
  nft delete table ip doctor
  soon crosses
  is 'it is taken away: status' 0 $status
fi

first_failure 'no route' 'FAIL  rdma: route: .*Network is unreachable' 'ip route get' rdma://203.0.113.9:7001
ip link set va down
first_failure 'the other link is down' 'FAIL  rdma: ' 'The first failure is (ports|rdma: [a-z ]+)\.' "$url"
total
