#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Packets on the wire: RoCE (UDP 4791) is captured while kv-cli stores a value. Over rdma:// the
# value is found in the packets, which shows that the capture works; over tls+rdma:// it is not.
# Traffic class and MTU must be as the options say.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${AECONN_BUILD:-build} work=$(mktemp -d) || exit 1
passed=0 failed=0 pids=()
finish() { kill "${pids[@]}" 2>/dev/null; rm -rf "$work"; }
trap finish EXIT
check() {  # NAME COMMAND...
  local name=$1; shift
  if "$@"; then passed=$((passed + 1)); echo "ok $name"; else failed=$((failed + 1)); echo "FAIL $name"; fi
}
soon() { for ((i = 0; i < 600; i++)); do "$@" && return 0; sleep 0.1; done; return 1; }
not() { ! "$@"; }

if "$build/kv-server" --listen tls+rdma://127.0.0.1:1 2>&1 | grep -q 'leaves TLS out'; then
  echo 'SKIPPED: this build has no TLS'
  echo '0 passed, 0 failed'
  exit
fi
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=capture \
  -addext "subjectAltName=IP:$AECONN_RDMA_ADDRESS" -keyout "$work/key.pem" -out "$work/cert.pem" \
  2>"$work/openssl.log" || { cat "$work/openssl.log"; echo '0 passed, 1 failed'; exit 1; }
"$build/kv-server" --listen "rdma://$AECONN_RDMA_ADDRESS:7001" --tls-cert "$work/cert.pem" \
  --tls-key "$work/key.pem" --listen "tls+rdma://$AECONN_RDMA_ADDRESS:7002" >"$work/server.log" 2>&1 &
pids+=($!)
listening() { [ "$(grep -c '^listening on' "$work/server.log")" = 2 ]; }
soon listening || { cat "$work/server.log"; echo '0 passed, 1 failed'; exit 1; }

record() {  # FILE: captures until `stop_recording`
  tcpdump -i any -U -w "$1" udp port 4791 2>"$work/tcpdump.log" &
  recorder=$!; pids+=($!)
  grabs() { grep -q 'listening on' "$work/tcpdump.log"; }
  soon grabs
}
stop_recording() { kill -INT "$recorder"; wait "$recorder" 2>/dev/null; }
has_text() { grep -aq "$2" "$1"; }
packets() { tcpdump -r "$1" 2>/dev/null | wc -l; }

source="source=$AECONN_RDMA_ADDRESS2"
record "$work/plain.pcap"
check 'SET over rdma' [ "$("$build/kv-cli" -u "rdma://$AECONN_RDMA_ADDRESS:7001?$source" SET openkey plainvalue1234)" = OK ]
soon has_text "$work/plain.pcap" plainvalue1234
stop_recording
check "its packets were captured ($(packets "$work/plain.pcap"))" [ "$(packets "$work/plain.pcap")" -gt 10 ]
check 'its packets show the key' has_text "$work/plain.pcap" openkey
check 'its packets show the value' has_text "$work/plain.pcap" plainvalue1234

record "$work/tls.pcap"
url="tls+rdma://$AECONN_RDMA_ADDRESS:7002?$source&ca=$work/cert.pem"
check 'SET over tls+rdma' [ "$("$build/kv-cli" -u "$url" SET hiddenkey secretvalue5678)" = OK ]
check 'GET over tls+rdma' [ "$("$build/kv-cli" -u "$url" GET hiddenkey)" = secretvalue5678 ]
enough() { [ "$(packets "$work/tls.pcap")" -gt 20 ]; }
soon enough
stop_recording
check "its packets were captured ($(packets "$work/tls.pcap"))" enough
check 'its packets do not show the key' not has_text "$work/tls.pcap" hiddenkey
check 'its packets do not show the value' not has_text "$work/tls.pcap" secretvalue5678
check 'nor a word of the protocol' not has_text "$work/tls.pcap" 'SET'

# Options must take effect in packets of both directions: the traffic class of each end (in
# rdma_cm's messages the connecting end's), and no packet longer than the lesser path-mtu allows.
"$build/kv-server" --listen "rdma://$AECONN_RDMA_ADDRESS:7003?traffic-class=104&path-mtu=1024" >"$work/marked.log" 2>&1 &
pids+=($!)
marked_listening() { grep -q '^listening on' "$work/marked.log"; }
soon marked_listening || cat "$work/marked.log"
record "$work/marked.pcap"
value=$(head -c 6000 /dev/zero | tr '\0' v)
marked() { "$build/kv-cli" -u "rdma://$AECONN_RDMA_ADDRESS:7003?$source&traffic-class=40&path-mtu=512" "$@" 2>"$work/marked.err"; }
check 'SET with a traffic class and an MTU' [ "$(marked SET marked "$value")" = OK ]
check 'GET with them' [ "$(marked GET marked)" = "$value" ]
path=$(marked --verbose PING >/dev/null; cat "$work/marked.err")
check "path() says so: $path" grep -q 'RoCEv2 .* mtu 512 tc 40 ' <<<"$path"
path=$(marked CLIENT INFO)
check "and the server's" grep -q 'RoCEv2_.*_mtu_512_tc_104_' <<<"$path"
soon has_text "$work/marked.pcap" vvvvvvvv
stop_recording
tcpdump -nv -r "$work/marked.pcap" 2>/dev/null | paste - - >"$work/marked.txt"  # a packet in two lines
from() {  # ADDRESS: its packets as "tos length"
  sed -nE "s/^.*\\(tos (0x[0-9a-f]+),.* length ([0-9]+)\\).*[[:space:]]$1\\.[0-9]+ > .*/\\1 \\2/p" "$work/marked.txt"
}
# All packets of a message except the last have 512 bytes and headers: IP 20, UDP 8, BTH 12, ICRC 4,
# and in the first RETH 16.
long() { awk '$2 >= 512 {print $1, $2}' | sort | uniq -c; }
echo 'long packets of the client:'; from "$AECONN_RDMA_ADDRESS2" | long
echo 'long packets of the server:'; from "$AECONN_RDMA_ADDRESS" | long
only() { [ -n "$2" ] && [ "$(sort -u <<<"$2")" = "$1" ]; }
check "the client's packets have its traffic class" only 0x28 "$(from "$AECONN_RDMA_ADDRESS2" | cut -d' ' -f1)"
check "the server's data has its own" only 0x68 "$(from "$AECONN_RDMA_ADDRESS" | awk '$2 >= 512 {print $1}')"
longest() { [ "$(from "$1" | awk '{print $2}' | sort -n | tail -n 1)" = "$2" ]; }
check 'no packet of the client is longer than its MTU' longest "$AECONN_RDMA_ADDRESS2" 572
check 'no packet of the server is, either' longest "$AECONN_RDMA_ADDRESS" 572
[ $failed = 0 ] || cat "$work/server.log" "$work/marked.log" "$work/tcpdump.log"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
