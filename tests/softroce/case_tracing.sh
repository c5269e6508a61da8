#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs the one-liners of docs/tracing.md, unchanged, against kv-server over rdma: their counts must
# agree with INFO.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/../clients/kit"
skip() { echo "SKIPPED: tracing: $1"; total; exit; }
command -v bpftrace >/dev/null || skip 'bpftrace is not installed (package bpftrace)'
readelf -n "$kv_server" 2>/dev/null | grep -q 'Provider: aeconn' ||
  skip 'this build is without probes'
[ "$(id -u)" = 0 ] || skip 'bpftrace needs root'
mountpoint -q /sys/kernel/tracing || mount -t tracefs none /sys/kernel/tracing 2>/dev/null ||
  skip 'this kernel has no tracefs'
[ -e /sys/bus/event_source/devices/uprobe ] || skip 'this kernel has no uprobes'

# bpftrace reads all debug information, which takes minutes here and is not needed for probes.
strip -g -o "$work/kv-server" "$kv_server" && kv_server=$work/kv-server
# Writes each one-liner to a file of its own, with the tested server's path.
awk -v folder="$work" '/^```/ {inside = 0} /^bpftrace -e / {inside = 1; file = folder "/line" ++n}
                       inside {print >file}' docs/tracing.md
lines=("$work"/line*)
is 'the page has three' 3 "${#lines[@]}"
tracers=()
for line in "${lines[@]}"; do
  sed -i "s|build/kv-server|$kv_server|g; 1s|^bpftrace|exec bpftrace|" "$line"
  bash "$line" >"$line.out" 2>&1 &
  tracers+=($!) servers+=($!)
done
# bpftrace sleeps on its buffers once it has attached all probes.
tracing() {
  for ((i = 0; i < 3; i++)); do
    kill -0 "${tracers[i]}" 2>/dev/null || return 0
    [[ $(cat "/proc/${tracers[i]}/wchan" 2>/dev/null) =~ ep_poll|epoll_wait ]] || return 1
  done
}
for ((tries = 0; tries < 3; tries++)); do soon tracing && break; done
tracing || fail 'bpftrace attaches' "$(cat "${lines[@]/%/.out}")"
for ((i = 0; i < 3; i++)); do
  kill -0 "${tracers[i]}" 2>/dev/null || fail "one-liner $((i + 1)) runs" "$(cat "${lines[i]}.out")"
done

start --listen "rdma://$AECONN_RDMA_ADDRESS:7001" --listen tcp://127.0.0.1:7002 || { total; exit; }
{
  for i in 1 2 3; do echo "SET key$i $(printf %0100000d "$i")"; done
  echo 'MGET key1 key2 key3 key1 key2 key3 key1 key2 key3'
} | timeout 60 "$kv_cli" -u "${urls[0]}" >"$work/replies" 2>&1
is 'the client got its values' 900000 "$(tr -cd 0-9 <"$work/replies" | wc -c)"
timeout 60 "$kv_cli" -u "${urls[0]}" PING >"$work/replies" 2>&1
# Over tcp, so that the counters of rdma do not change.
info() {
  timeout 60 "$kv_cli" -u "${urls[1]}" INFO | tr -d '\r' |
    awk '/^# / {ours = tolower($0) ~ /rdma/ && tolower($0) !~ /tls/} ours'
}
all_closed() { grep -q '^open:0$' <<<"$(info)"; }
soon all_closed || fail 'the connections end' "$(info)"
said=$(info)
# Detaching a probe waits for all processors of the kernel, which takes minutes while they are busy,
# unless it interrupts them.
echo 1 >/sys/kernel/rcu_expedited
kill -INT "${tracers[@]}"
all_gone() { ! kill -0 "${tracers[@]}" 2>/dev/null; }
for ((tries = 0; tries < 6; tries++)); do
  soon all_gone && break
  kill -INT "${tracers[@]}" 2>/dev/null
done
for ((i = 0; i < 3; i++)); do
  ended "${tracers[i]}"
  [ "$status" != 137 ] || fail "one-liner $((i + 1)) ends" "killed after six Ctrl-C, having said '$(cat "${lines[i]}.out")'"
done
cat "${lines[@]/%/.out}"
field() { sed -n "s/^$1://p" <<<"$said"; }
value() { sed -n "s/^@$1: \([0-9]*\)$/\1/p" "$work"/line*.out; }
is 'connections that were accepted' "$(field accepted)" "$(value 'accepted\[rdma\]')"
is 'connections that were closed' "$(field closed)" "$(value 'closed\[rdma\]')"
is 'bytes that were read' "$(field bytes_read)" "$(value 'read\[rdma\]')"
is 'bytes that were written' "$(field bytes_written)" "$(value 'written\[rdma\]')"
is 'doorbells' "$(field doorbells)" "$(value doorbells)"
is 'work requests' "$(field work_requests)" "$(value requests)"
sum() {
  sed -n "s/^@$1\[.*\]: \([0-9]*\)$/\1/p" "$work"/line*.out | awk '{n += $1} END {print n + 0}'
}
within() {  # NAME LEAST GOT MOST
  if [ "$3" -ge "$2" ] && [ "$3" -le "$4" ]; then ok "$1"; else fail "$1" "$3 is not within $2 and $4"; fi
}
# Each window made was announced, in a message of its own.
within 'windows that were offered' "$(field windows)" "$(sum offered)" "$(field control_sent)"
# A client's first window has 64k, and none is shorter.
within 'windows that were filled' 1 "$(sum filled_next_has)" $(($(field bytes_written) / 65536))
total
