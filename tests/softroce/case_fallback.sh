#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# rdma|tcp:// with RDMA available, with the RDMA server or device missing, and with a device that is
# removed and comes back while a client redials.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/../clients/kit"
[ -e /sys/class/infiniband/rxe0 ] || { echo 'skipped: this is for rxe0 in the microVM'; total; exit; }
back() { [ -e /sys/class/infiniband/rxe0 ] || rdma link add rxe0 type rxe netdev dummy0; }
trap 'back; finish' EXIT
both="rdma|tcp://$AECONN_RDMA_ADDRESS"

serve() {  # LINES-TO-AWAIT ARGUMENTS...
  local expected=$1; shift
  log=$work/list.log
  : >"$log"
  "$kv_server" "$@" >"$log" 2>&1 &
  server=$!
  servers+=("$server")
  listens() { [ "$(grep -c '^listening on ' "$log")" -ge "$expected" ]; }
  soon listens || fail "a server starts with $*" "$(cat "$log")"
}
await() { if soon "$2"; then ok "$1"; else fail "$1" "$(tail -n 5 "$work/life" 2>&1)"; fi; }  # NAME COMMAND
ask() { timeout 60 "$kv_cli" -u "$1?connect-timeout=60s" PING 2>"$work/told"; }

serve 2 --listen "$both:7000"
has 'a list is served on both' "rdma://$AECONN_RDMA_ADDRESS:7000
tcp://$AECONN_RDMA_ADDRESS:7000" "$(cat "$log")"
is 'the preferred one is taken' PONG "$(ask "$both:7000")"
is 'and nothing is told' '' "$(cat "$work/told")"

serve 1 --listen "tcp://$AECONN_RDMA_ADDRESS:7001"
is 'a server on tcp alone' PONG "$(ask "$both:7001")"
has 'and why' 'by tcp; not rdma: .*refused' "$(cat "$work/told")"
has 'rdma alone does not fall back' 'Could not connect' "$(timeout 30 "$kv_cli" -u "rdma://$AECONN_RDMA_ADDRESS:7001" PING 2>&1)"
has 'nor does TLS to none' 'which is not encrypted' "$("$kv_cli" -u "tls+rdma|tcp://$AECONN_RDMA_ADDRESS:7001" PING 2>&1)"

# A client that stays connected while the device is removed and comes back. The head start of rdma
# (fallback-delay) is longer than any machine is slow.
timeout 120 "$kv_cli" --redial -r -1 -u "$both:7000?fallback-delay=60s&connect-timeout=90s" PING >"$work/answers" 2>"$work/life" &
client=$!
servers+=("$client")
answers() { grep -c PONG "$work/answers"; }
more() { [ "$(answers)" -gt "$had" ]; }
had=5
await 'a client that redials has answers' more
rdma link delete rxe0
lost() { grep -q 'connection lost' "$work/life"; }
await 'it loses its connection with the device' lost
by_tcp() { grep -q 'up by tcp; not rdma' "$work/life"; }
await 'it goes on by tcp and says so' by_tcp
had=$(answers)
await 'and has answers' more
is 'a client without a device' PONG "$(ask "$both:7000")"
has 'and why' 'by tcp; not rdma: ' "$(cat "$work/told")"
serve 1 --listen "$both:7002"
has 'a server without a device says so' 'not rdma: .*no RDMA device' "$(cat "$log")"
back
kill "$client"
wait "$client" 2>/dev/null
rdma_again() { [ "$(ask "rdma://$AECONN_RDMA_ADDRESS:7000")" = PONG ]; }
await 'the listener is back with the device' rdma_again
is 'and the list prefers it again' "PONG" "$(ask "$both:7000")"
is 'without a word' '' "$(cat "$work/told")"
total
