#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# aeconn-doctor on a machine without RDMA: its report, connections over tcp, tls and unix to its own
# server, limits, JSON, exit status. Rows about devices are tested in
# tests/softroce/long_case_doctor.sh and long_veth_case_doctor.sh.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/kit"
doctor() { timeout 60 "$build/aeconn-doctor" "$@" 2>&1; }

# ---- this machine -------------------------------------------------------------------------------
out=$(doctor); status=$?
has 'a row says what was built' '(ok    build: this program has rdma|FAIL  build: )' "$out"
if [ -e /sys/class/infiniband_verbs ]; then
  echo 'skipped: this machine has the kernel modules of RDMA'
else
  is 'no RDMA: status' 1 $status
  has 'no RDMA: the modules' 'FAIL  modules: not in the kernel: .*ib_uverbs' "$out"
  has 'no RDMA: what to do' 'The first failure is (build|modules)\. What to do: [a-z]+' "$(tail -n 1 <<<"$out")"
fi
has 'one processor' 'processors: this process may run on 1 processor; loops do not spin' \
  "$(taskset -c "$(taskset -cp $$ | grep -oE '[0-9]+' | tail -n 1)" "$build/aeconn-doctor")"

# ---- dials, and their other end -----------------------------------------------------------------
key=$work/key.pem cert=$work/cert.pem
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$key" -out "$cert" \
  -subj /CN=localhost -addext 'subjectAltName=IP:127.0.0.1' -days 2 2>/dev/null ||
  echo 'skipped tls: no openssl'
names() { sed -nE 's/^[a-zA-Z-]+ +([a-z+]+: [a-zA-Z0-9 ]+): .*/\1/p' <<<"$1" | paste -sd' '; }
if begin "$build/aeconn-doctor" --serve tcp://127.0.0.1:0; then
  out=$(doctor "$at"); status=$?
  is 'tcp: status' 0 $status
  is 'tcp: the steps' 'tcp: resolve name tcp: connect tcp: first round trip tcp: round trips tcp: 64 KiB there and back tcp: path' "$(names "$out")"
  has 'tcp: times' 'ok    tcp: round trips: [0-9.]+ (us|ms) is the median of [0-9]+' "$out"
  has 'tcp: who it is' 'tcp: path: tcp 127\.0\.0\.1:[0-9]+ > 127\.0\.0\.1:[0-9]+; an echo answered' "$out"
  is 'JSON' 'True True True' "$(doctor --json "$at" | python3 -c 'import json, sys
all = json.load(sys.stdin)
print(all["ok"], all["first_failure"] is None, any(row["row"] == "tcp: connect" and row["us"] > 0 for row in all["rows"]))')"
  stop "$server"
  is 'the other end ends by SIGTERM' 0 "$status"
  out=$(doctor "$at"); status=$?
  is 'nobody listens: status' 1 $status
  has 'nobody listens: what to do' 'FAIL  tcp: connect: .*Connection refused' "$out"
  has 'nobody listens: the last line' 'tcp: connect. What to do: no server listens there' "$(tail -n 1 <<<"$out")"
  is 'nobody listens: JSON' 'False tcp: connect' "$(doctor --json "$at" | python3 -c 'import json, sys
all = json.load(sys.stdin)
print(all["ok"], all["first_failure"]["row"])')"
fi
if begin "$build/aeconn-doctor" --serve "unix://$work/echo"; then
  has 'unix' 'unix: path: unix .*; an echo answered' "$(doctor "$at")"
  stop "$server"
fi
if start --listen tcp://127.0.0.1:0; then
  out=$(doctor "${urls[0]}"); status=$?
  is 'a server of RESP: status' 0 $status
  has 'a server of RESP' '; a server of RESP answered' "$out"
  stop "$server"
fi
if [ ! -s "$cert" ] || ! "$build/aeconn-doctor" --limits tls://127.0.0.1:1 >/dev/null 2>&1; then
  echo 'skipped tls: it is not in this build'
elif begin "$build/aeconn-doctor" --serve "tls://127.0.0.1:0?cert=$cert&key=$key"; then
  out=$(doctor "tls://127.0.0.1:${at##*:}?ca=$cert"); status=$?
  is 'tls: status' 0 $status
  is 'tls: the steps' 'tls: resolve name tls: connect tls: TLS handshake tls: first round trip tls: round trips tls: 64 KiB there and back tls: path tls: peer certificate' "$(names "$out")"
  has 'tls: a certificate that ends soon' 'note  tls: peer certificate: ends on 20[0-9-]*T[0-9:]*Z, in [12] day' "$out"
  out=$(doctor "tls://127.0.0.1:${at##*:}"); status=$?
  is 'tls, not trusted: status' 1 $status
  has 'tls, not trusted: the step' 'FAIL  tls: TLS handshake: ' "$out"
  has 'tls, not trusted: what to do' 'TLS handshake. What to do: .*ca=' "$(tail -n 1 <<<"$out")"
  stop "$server"
fi

# ---- limits -------------------------------------------------------------------------------------
out=$(doctor --connections 50 --limits tcp://127.0.0.1:1); status=$?
is 'enough: status' 0 $status
has 'enough: a line' '^ok   descriptors \(nofile\): [0-9]+, [0-9]+ used; 50 connections of these options need 66$' "$out"
out=$(ulimit -n 300; doctor --connections 1000 --limits tcp://127.0.0.1:1 --limits unix:///x); status=$?
is 'too low: status' 1 $status
is 'too low: a line for each' 2 "$(grep -c '^LOW ' <<<"$out")"
has 'too low: what to do' 'so there is room for 2[0-9][0-9]: raise it with ulimit -' "$out"
has 'JSON of limits' '^\{"url":"tcp://127.0.0.1:1","connections":7,"enough":true,"limits":\[\{"limit":"descriptors \(nofile\)","most":[0-9]+,"used":[0-9]+,"needed":23,"unit":"count","connections":[0-9]+,"enough":true,"text":' \
  "$(doctor --json --connections 7 --limits tcp://127.0.0.1:1)"
is 'JSON of limits is JSON' True "$(doctor --json --limits tcp://127.0.0.1:1 | python3 -c 'import json, sys; print(json.load(sys.stdin)["enough"])')"
low() { (ulimit -n 300; doctor "$@" tcp://127.0.0.1:1 | grep ' limit: '); }
has 'a row that is low is a note' '^note  limit: .*room for 2[0-9][0-9]' "$(low)"
has 'a row that is too low for what was asked is a failure' '^FAIL  limit: .*room for 2[0-9][0-9]' "$(low --connections 1000)"

# ---- mistakes -----------------------------------------------------------------------------------
bad() {
  local out status
  out=$(doctor "$@"); status=$?
  is "$*: status" 2 $status
  is "$*: one line" 1 "$(wc -l <<<"$out")"
}
bad nonsense
bad tcp://127.0.0.1:1?wings=2
bad carrier://127.0.0.1:1
bad --limits nonsense
bad --serve carrier://127.0.0.1:1
[ -n "$(ls /sys/class/infiniband 2>/dev/null)" ] || bad --limits rdma://127.0.0.1:1
doctor --serve tcp://127.0.0.1:1 --limits tcp://127.0.0.1:1 >/dev/null; is 'two things at once' 2 $?
refuses 'a place that is taken' 'aeconn-doctor: ' "$build/aeconn-doctor" --serve unix:///nowhere/at/all
total
