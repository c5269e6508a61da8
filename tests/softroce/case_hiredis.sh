#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# hiredis and libvalkey over rdma and tls+rdma, against kv-server. tests/adapters/hiredis.sh tests
# other transports and servers; tests/adapters/programs builds the programs.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${AECONN_BUILD:-build} work=$(mktemp -d) || exit 1
passed=0 failed=0 server=''
# Waits for the server: otherwise the shell may report after the count that it was killed.
finish() { [ -z "$server" ] || { kill -KILL "$server" && wait "$server"; } 2>/dev/null; rm -rf "$work"; }
trap finish EXIT
export AECONN_SLOWER=$((5 * ${AECONN_SLOWER:-1}))  # the processors are emulated

programs=()
for program in hiredis libvalkey; do
  if [ -x "$build/tests/adapters/$program" ]; then programs+=("$program")
  else echo "SKIPPED: $program: its library could not be had"; fi
done
[ ${#programs[@]} != 0 ] || { echo '0 passed, 0 failed'; exit; }

urls=("rdma://$AECONN_RDMA_ADDRESS:6400") queries=('') listen=(--listen "rdma://$AECONN_RDMA_ADDRESS:6400")
if "$build/kv-server" --listen tls+rdma://127.0.0.1:1 2>&1 | grep -q 'leaves TLS out'; then
  echo 'No test over TLS: this build is without it.'
else
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=clients \
    -addext "subjectAltName=IP:$AECONN_RDMA_ADDRESS" -keyout "$work/key.pem" -out "$work/cert.pem" \
    2>"$work/openssl.log" || { cat "$work/openssl.log"; echo '0 passed, 1 failed'; exit 1; }
  urls+=("tls+rdma://$AECONN_RDMA_ADDRESS:6401") queries+=("?ca=$work/cert.pem")
  listen+=(--listen "${urls[1]}" --tls-cert "$work/cert.pem" --tls-key "$work/key.pem")
fi
"$build/kv-server" "${listen[@]}" >"$work/server.log" 2>&1 &
server=$!
for ((i = 0; i < 600; i++)); do
  [ "$(grep -c '^listening on' "$work/server.log")" != ${#urls[@]} ] || break
  sleep 0.1
done
count() {  # NAME STATUS OUTPUT
  if [ "$2" = 0 ]; then passed=$((passed + 1)); echo "ok $1: $(tail -n 1 "$3" | sed 's/ passed.*/ checks/')"
  else failed=$((failed + 1)); echo "FAIL $1: status $2"; cat "$3"; fi
}
# One after the other, since some tests stop the server.
for i in "${!urls[@]}"; do
  for program in "${programs[@]}"; do
    timeout 120 "$build/tests/adapters/$program" "${urls[i]}${queries[i]}" $server >"$work/out" 2>&1
    count "$program, ${urls[i]%%:*}" $? "$work/out"
  done
done
urls+=("rdma|tcp://$AECONN_RDMA_ADDRESS:6400") queries+=('')
# Blocking contexts that wait without traffic: all at the same time.
waiting=()
for i in "${!urls[@]}"; do
  for program in "${programs[@]}"; do
    timeout 120 "$build/tests/adapters/$program" "${urls[i]}${queries[i]}" $server idle >"$work/$program.$i" 2>&1 &
    waiting+=("$! $program $i")
  done
done
for one in "${waiting[@]}"; do
  read -r pid program i <<<"$one"
  wait "$pid"
  count "$program, ${urls[i]%%:*}: idle for longer than the server waits for keepalives" $? "$work/$program.$i"
done
[ $failed = 0 ] || cat "$work/server.log"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
