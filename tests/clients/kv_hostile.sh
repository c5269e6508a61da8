#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A kv-server process with clients that exceed limits, over TCP, a Unix socket and TLS: its memory
# as counted by the kernel, and that a well-behaved client is still served.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/kit"
command -v python3 >/dev/null || { fail python3 'it is not installed (package python3)'; total; exit; }
hostile() { timeout 120 python3 tests/clients/kv_hostile.py "$@" 2>&1; }
# AddressSanitizer keeps freed memory and needs unlimited address space.
sanitized=
nm -D "$kv_server" 2>/dev/null | grep -q __asan_init && sanitized=yes

# ---- hundreds of slow readers and writers -------------------------------------------------------
listen=(--listen tcp://127.0.0.1:0?send-buffer=16k --listen "unix://$work/kv.sock?send-buffer=16k")
if "$kv_server" --listen tls://127.0.0.1:0 2>&1 | grep 'tls is not available'; then
  echo 'No slow clients over TLS: this kv-server was built without it.'
else
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=kv \
    -addext subjectAltName=IP:127.0.0.1 -keyout "$work/key.pem" -out "$work/cert.pem" 2>/dev/null
  listen+=(--listen "tls://127.0.0.1:0?cert=$work/cert.pem&key=$work/key.pem&send-buffer=16k")
fi
start "${listen[@]}" --client-output-limit 64kb --maxmemory-clients 8mb || { total; exit; }
for url in "${urls[@]}"; do
  transport=${url%%:*}
  report=$(hostile slow "$url" "$server" "$work/cert.pem")
  echo "$transport: $report"
  # 300 readers are closed; 300 writers, which use little memory, and the well-behaved client stay.
  has "$transport: slow readers are given up, slow writers wait, an honest client goes on" \
    '^closed=300 left=0 rounds=[0-9]+ clients=301 ' "$report"
  peak=${report##*peak=} peak=${peak%KiB*}
  # The limit's memory, and for each connection 64 KiB for TLS and 16 for the library.
  if [ -n "$sanitized" ]; then
    echo "$transport: its peak is not looked at: AddressSanitizer keeps what is freed"
  elif [[ $peak =~ ^[0-9]+$ ]] && [ "$peak" -lt $((8192 + 4096 + 600 * 80)) ]; then
    ok "$transport: $peak KiB at its peak for 600 slow clients"
  else
    fail "$transport: memory" "$report"
  fi
done
stop "$server"
is 'it ends as asked' 0 "$status"

# ---- more connections than a listener takes -----------------------------------------------------
start --listen 'tcp://127.0.0.1:0?max-connections=5' || { total; exit; }
is 'max-connections=5 of 8 get an answer' $'answered=5\nrefused=3' "$(hostile crowd "${urls[0]}" 8)"
has 'and the log says who was refused' 'refused: 127\.0\.0\.1:[0-9]+: 5 connections are open \(max-connections\)' "$(cat "$log")"
stop "$server"

# ---- no memory ----------------------------------------------------------------------------------
if [ -n "$sanitized" ]; then
  echo 'No test of an address space that is full: AddressSanitizer needs more than there is.'
else
  ulimit -S -v 400000
  start --listen tcp://127.0.0.1:0
  ulimit -S -v unlimited
  is 'an address space that is full is an error of one command' $'-OOM out of memory\n+PONG :8388608\n+OK' \
    "$(hostile fill "${urls[0]}")"
  stop "$server"
  is 'and it ends as asked' 0 "$status"
fi
total
