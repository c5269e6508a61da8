#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# conn-perf over rdma and tls+rdma: each mode, with few requests.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${AECONN_BUILD:-build} work=$(mktemp -d) || exit 1
passed=0 failed=0 pids=()
finish() { kill "${pids[@]}" 2>/dev/null; rm -rf "$work"; }
trap finish EXIT
check() {  # NAME COMMAND...
  local name=$1; shift
  if "$@"; then passed=$((passed + 1)); echo "ok $name"
  else failed=$((failed + 1)); echo "FAIL $name"; cat "$work/out"; fi
}
soon() { for ((i = 0; i < 600; i++)); do "$@" && return 0; sleep 0.1; done; return 1; }

# Where the kernel has tracepoints, conn-perf needs tracefs to count system calls.
mount -t tracefs none /sys/kernel/tracing 2>/dev/null

urls=("rdma://$AECONN_RDMA_ADDRESS:7001") queries=('')
listen=(--listen "${urls[0]}")
if "$build/conn-perf" server --listen tls+rdma://127.0.0.1:1 2>&1 | grep -q 'leaves TLS out'; then
  echo 'No test over TLS: this build is without it.'
else
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=perf \
    -addext "subjectAltName=IP:$AECONN_RDMA_ADDRESS" -keyout "$work/key.pem" -out "$work/cert.pem" \
    2>"$work/openssl.log" || { cat "$work/openssl.log"; echo '0 passed, 1 failed'; exit 1; }
  urls+=("tls+rdma://$AECONN_RDMA_ADDRESS:7002") queries+=("?ca=$work/cert.pem")
  listen+=(--listen "${urls[1]}?cert=$work/cert.pem&key=$work/key.pem")
fi
"$build/conn-perf" server "${listen[@]}" >"$work/server.log" 2>&1 &
pids+=($!)
listening() { [ "$(grep -c '^listening on' "$work/server.log")" = ${#urls[@]} ]; }
soon listening || { cat "$work/server.log"; echo '0 passed, 1 failed'; exit 1; }

p() { timeout 100 "$build/conn-perf" client "$@" --csv "$work/csv" >"$work/out" 2>&1; }
cell() {  # COLUMN: of the last line
  awk -F, -v name="$1" 'NR == 1 {for (i = 1; i <= NF; ++i) if ($i == name) at = i} END {print $at}' "$work/csv"
}
requests() { [ "$(cell requests)" -ge "$1" ]; }
for i in "${!urls[@]}"; do
  url=${urls[i]}${queries[i]} scheme=${urls[i]%%:*}
  check "$scheme: request-response" p "$url" --warmup 0.1 --requests 200 --connections 2 --depths 4 --sizes 64,100k
  check "$scheme: all were answered" requests 200
  device_shown() { grep -q '^client: .*device [a-z].*, MTU [0-9]' "$work/out"; }
  check "$scheme: device and MTU" device_shown
  if [ -d /sys/kernel/tracing/events/raw_syscalls ]; then
    counted() { awk -v a="$(cell client_syscalls_per_request)" -v b="$(cell server_syscalls_per_request)" 'BEGIN {exit !(a > 0 && b > 0)}'; }
    check "$scheme: system calls are counted" counted
  fi
  check "$scheme: a stream both ways" p "$url" --mode stream --both-ways --warmup 0 --requests 100 --sizes 16k
  check "$scheme: both ways count" requests 200
  check "$scheme: new connections" p "$url" --mode connect --warmup 0 --requests 10 --connections 2
  check "$scheme: all were made" requests 10
  check "$scheme: idle connections" p "$url" --mode idle --connections 10
  # A client starts without memory; the server keeps what earlier connections left.
  pinned() { [ "$(cell client_pinned_bytes)" -gt 4096 ]; }
  check "$scheme: they pin memory" pinned
  check "$scheme: none has a descriptor" [ "$(cell server_descriptors)" = 0 ]
done

# Two loops at both ends, over rdma, and over tcp, where a request takes a read, a write and a wait
# at each end: if only one thread's system calls were counted, half of them would be missing.
urls[0]=rdma://$AECONN_RDMA_ADDRESS:7003 tcp=tcp://127.0.0.1:7005
listen=(--listen "${urls[0]}" --listen "$tcp")
if [ ${#urls[@]} = 2 ]; then
  urls[1]=tls+rdma://$AECONN_RDMA_ADDRESS:7004
  listen+=(--listen "${urls[1]}?cert=$work/cert.pem&key=$work/key.pem")
fi
"$build/conn-perf" server --loops 2 "${listen[@]}" >"$work/server.log" 2>&1 &
pids+=($!)
listening() { [ "$(grep -c '^listening on' "$work/server.log")" = $((${#urls[@]} + 1)) ]; }
soon listening || { cat "$work/server.log"; echo '0 passed, 1 failed'; exit 1; }
spread() {  # CONNECTIONS-OF-EACH: at both ends
  [ "$(grep -c "^  \(client\|server\), by loop: connections $1 $1\(,\|$\)" "$work/out")" = 2 ]
}
for i in "${!urls[@]}"; do
  url=${urls[i]}${queries[i]} scheme="two loops, ${urls[i]%%:*}"
  check "$scheme: request-response" p "$url" --loops 2 --warmup 0.1 --requests 200 --connections 4 --depths 4
  check "$scheme: all were answered" requests 200
  check "$scheme: spread evenly" spread 2
  check "$scheme: a stream both ways" p "$url" --loops 2 --mode stream --both-ways --warmup 0 --requests 100 --sizes 16k --connections 2
  check "$scheme: both ways count" requests 200
  check "$scheme: new connections" p "$url" --loops 2 --mode connect --warmup 0 --requests 10 --connections 2
  check "$scheme: all were made" requests 10
  check "$scheme: idle connections" p "$url" --loops 2 --mode idle --connections 10
  check "$scheme: spread evenly, too" spread 5
done
check 'two loops, tcp: request-response' p "$tcp" --loops 2 --warmup 0.1 --requests 200 --connections 2
check 'two loops, tcp: spread evenly' spread 1
if [ -d /sys/kernel/tracing/events/raw_syscalls ]; then
  all_counted() { awk -v a="$(cell client_syscalls_per_request)" -v b="$(cell server_syscalls_per_request)" 'BEGIN {exit !(a >= 2.5 && b >= 2.5)}'; }
  check 'two loops, tcp: system calls of both threads count' all_counted
fi
[ $failed = 0 ] || cat "$work/server.log"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
