#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# redis-benchmark, unmodified, against kv-server: each of its tests must end with a rate and without
# an error.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/kit"
command -v redis-benchmark >/dev/null || { echo 'FAIL redis-benchmark: it is not installed (package redis-tools)'; total; exit; }

start --listen tcp://127.0.0.1:0 --listen "unix://$work/kv.sock" || { total; exit; }
tests='PING_INLINE PING_MBULK SET GET INCR MSET (10 keys)'
for transport in tcp unix; do
  if [ $transport = tcp ]; then at=(-p "${urls[0]##*:}"); else at=(-s "$work/kv.sock"); fi
  for depth in 1 16; do
    name="$transport -c 50 -P $depth"
    timeout 60 redis-benchmark "${at[@]}" -t ping_inline,ping_mbulk,set,get,incr,mset \
      -c 50 -P $depth -n 4000 -r 1000 --csv >"$work/out" 2>"$work/err"
    status=$?
    is "$name: status" 0 $status
    is "$name: no complaint" '' "$(cat "$work/err")"
    is "$name: every test has a rate" "$tests" \
      "$(tr -d '"' <"$work/out" | awk -F, 'NR > 1 && $2 > 0 {print $1}' | paste -sd' ')"
  done
  timeout 60 redis-benchmark "${at[@]}" -t set,get,mset -c 50 -n 2000 -d 20000 -P 4 -q >"$work/out" 2>&1
  is "$transport: 20 kB values" 3 "$(tr '\r' '\n' <"$work/out" | grep -c 'requests per second')"
  timeout 60 redis-benchmark "${at[@]}" -t get -c 50 -n 1000 -k 0 -q >"$work/out" 2>&1
  is "$transport: a connection for each request" 1 "$(tr '\r' '\n' <"$work/out" | grep -c 'requests per second')"
done
stats=$(redis-cli -p "${urls[0]##*:}" INFO stats | tr -d '\r')
has 'the server saw no error' 'total_error_replies:0
protocol_errors:0
rejected_connections:0' "$stats"
one_client() { [ "$(redis-cli -p "${urls[0]##*:}" INFO clients | tr -d '\r' | sed -n 's/^connected_clients://p')" = 1 ]; }
if soon one_client; then ok 'no connection is left'; else fail 'no connection is left' "$(redis-cli -p "${urls[0]##*:}" INFO clients)"; fi
stop "$server"
is 'the server ends' 0 "$status"
total
