#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The Python package over rdma and tls+rdma, against kv-server: blocking sockets, asyncio and
# redis-py. tests/clients/python.sh tests other transports and newer releases of redis-py.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${AECONN_BUILD:-build} work=$(mktemp -d) || exit 1
passed=0 failed=0 server=''
# Waits for the server: otherwise the shell may report after the count that it was killed.
finish() { [ -z "$server" ] || { kill -KILL "$server" && wait "$server"; } 2>/dev/null; rm -rf "$work"; }
trap finish EXIT
AECONN_LIBRARY=$build/libaeconn-c.so
export AECONN_LIBRARY PYTHONDONTWRITEBYTECODE=1
python=/usr/bin/python3  # the distribution's interpreter, which finds its packages

urls=("rdma://$AECONN_RDMA_ADDRESS:6410") queries=('') listen=(--listen "rdma://$AECONN_RDMA_ADDRESS:6410")
if "$build/kv-server" --listen tls+rdma://127.0.0.1:1 2>&1 | grep -q 'leaves TLS out'; then
  echo 'No test over TLS: this build is without it.'
else
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=python \
    -addext "subjectAltName=IP:$AECONN_RDMA_ADDRESS" -keyout "$work/key.pem" -out "$work/cert.pem" \
    2>"$work/openssl.log" || { cat "$work/openssl.log"; echo '0 passed, 1 failed'; exit 1; }
  urls+=("tls+rdma://$AECONN_RDMA_ADDRESS:6411") queries+=("?ca=$work/cert.pem")
  listen+=(--listen "${urls[1]}" --tls-cert "$work/cert.pem" --tls-key "$work/key.pem")
fi
"$build/kv-server" "${listen[@]}" >"$work/server.log" 2>&1 &
server=$!
for ((i = 0; i < 600; i++)); do
  [ "$(grep -c '^listening on' "$work/server.log")" != ${#urls[@]} ] || break
  sleep 0.1
done

$python -c 'import redis' 2>/dev/null || echo 'SKIPPED: redis-py: python3-redis is not installed'
# Starting Python takes longest here, so one process runs all. Omitted tests do not use a transport
# of KV_URLS.
parts=(-k Blocking.test_echo -k Blocking.test_large -k Blocking.test_time_out -k Blocking.test_end
  -k Blocking.test_threads -k Blocking.test_fork -k Asyncio.test_echo -k Asyncio.test_back_pressure
  -k Asyncio.test_many -k RedisPy.test_commands -k RedisPy.test_killed
  -k Together.test_full_duplex -k Together.test_signals_end_a_wait -k AsASocket.test_select
  -k Callbacks.test_facts_at_the_end)
name="python, ${urls[*]%%:*}" log=$work/log all=''
for i in "${!urls[@]}"; do all+="${urls[i]}${queries[i]} "; done
if KV_URLS=$all timeout 180 $python -X faulthandler -m unittest -v "${parts[@]}" \
  bindings/python/test_*.py >"$log" 2>&1 && grep -q '^Ran [1-9]' "$log"; then
  passed=$((passed + 1)); echo "ok $name: $(grep '^Ran ' "$log")"
else failed=$((failed + 1)); echo "FAIL $name"; tail -n 60 "$log"; fi
[ $failed = 0 ] || cat "$work/server.log"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
