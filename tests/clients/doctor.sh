#!/usr/bin/env bash
# aeconn-doctor where there is no RDMA: descriptors, JSON, exit status.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/kit"
doctor() { "$build/aeconn-doctor" "$@" 2>&1; }

out=$(doctor --connections 50 tcp://127.0.0.1:1); status=$?
is 'enough: status' 0 $status
has 'enough: a line' '^ok   descriptors \(nofile\): [0-9]+, [0-9]+ used; 50 connections of these options need 66$' "$out"
out=$(ulimit -n 300; doctor --connections 1000 tcp://127.0.0.1:1 unix:///x); status=$?
is 'too low: status' 1 $status
is 'too low: a line for each' 2 "$(grep -c '^LOW ' <<<"$out")"
has 'too low: what to do' 'so there is room for 2[0-9][0-9]: raise it with ulimit -' "$out"
has 'JSON' '^\{"url":"tcp://127.0.0.1:1","connections":7,"enough":true,"limits":\[\{"limit":"descriptors \(nofile\)","most":[0-9]+,"used":[0-9]+,"needed":23,"unit":"count","connections":[0-9]+,"enough":true,"text":' \
  "$(doctor --json --connections 7 tcp://127.0.0.1:1)"
is 'JSON is JSON' True "$(doctor --json tcp://127.0.0.1:1 | python3 -c 'import json, sys; print(json.load(sys.stdin)["enough"])')"
bad() {
  local out status
  out=$(doctor "$@"); status=$?
  is "$*: status" 2 $status
  is "$*: one line" 1 "$(wc -l <<<"$out")"
}
bad nonsense
bad tcp://127.0.0.1:1?wings=2
bad carrier://127.0.0.1:1
[ -n "$(ls /sys/class/infiniband 2>/dev/null)" ] || bad rdma://127.0.0.1:1
doctor >/dev/null; is 'no URL' 2 $?
total
