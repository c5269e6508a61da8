#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A storm: the server is killed under its clients and restarted, and 200 connections are made to it
# at once. All must be established, none may time out, and nothing may be left afterwards.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/../clients/kit"
conn_perf=$build/conn-perf url=rdma://$AECONN_RDMA_ADDRESS:7021 storm=200

# Objects of the devices: "pd 2", "cq 2", "qp 2" and so on, one per line.
held() { rdma resource show | grep -oE '\<(pd|cq|qp|cm_id|mr|srq) [0-9]+'; }
# Objects of connections only: a server keeps memory and queues for later connections.
connected() { rdma resource show | grep -oE '\<(qp|cm_id) [0-9]+'; }
serve() {
  begin "$conn_perf" server --listen "$url" && now=$server
}

before=$(held)
serve || { total; exit; }
"$conn_perf" client "$url" --mode idle --connections 20 --hold 60s >"$work/first" 2>&1 &
first=$!
servers+=("$first")
measured() { grep -qE '^ +20 ' "$work/first" || ! kill -0 "$first" 2>/dev/null; }
soon measured
kill -KILL "$now"
wait "$now" 2>/dev/null
# Connected clients learn of the server's end, and exit.
gone() { ! kill -0 "$first" 2>/dev/null; }
for ((tries = 0; tries < 3; tries++)); do soon gone && break; done
gone && ok 'clients of a server that was killed end' ||
  fail 'clients of a server that was killed end' "$(cat "$work/first")"

serve || { total; exit; }
listening=$(connected)
begun=${EPOCHREALTIME/./}
timeout 120 "$conn_perf" client "$url" --mode idle --connections $storm --csv "$work/csv" \
  >"$work/storm" 2>&1
status=$?
took=$(((${EPOCHREALTIME/./} - begun) / 1000))
is "$storm at once: the client's status" 0 $status
[ $status = 0 ] || cat "$work/storm"
cell() {
  awk -F, -v name="$1" 'NR == 1 {for (i = 1; i <= NF; ++i) if ($i == name) at = i}
                        END {print $at}' "$work/csv"
}
is "$storm at once: all were connected" $storm "$(cell connections)"
is "$storm at once: none failed" '' "$(grep -iE 'timed out|refused|reset|fail|error' "$work/storm" "$log")"
echo "storm: $storm connections made, counted for two seconds and closed in $took ms"

let_go() { [ "$(connected)" = "$listening" ]; }
soon let_go
is 'the server has let go of all of them' "$listening" "$(connected)"
# The next client must be served as usual.
timeout 60 "$conn_perf" client "$url" --warmup 0 --requests 20 >"$work/next" 2>&1
is 'the next client is served' 0 $?
stop "$now"
none_left() { [ "$(held)" = "$before" ]; }
soon none_left
is 'nothing is left on the device' "$before" "$(held)"
total
