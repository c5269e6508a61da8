#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# ae::EpollLoop within host loops, and asio streams, over rdma and tls+rdma. There are no keepalives
# that would hide a missing wake-up. tests/adapters/loops.sh tests other transports; `make
# adapter-programs` builds the programs.
set -u
cd "$(dirname "$0")/../.." || exit 1
at=${AECONN_BUILD:-build}/tests/adapters work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
export AECONN_SLOWER=$((4 * ${AECONN_SLOWER:-1}))  # the processors are emulated

[ -e "$at/missing" ] || { echo "FAIL $at/missing is missing: make adapter-programs"; echo '0 passed, 1 failed'; exit 1; }
cat "$at/missing"
cert=$work/cert.pem key=$work/key.pem
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=loops \
  -addext "subjectAltName=IP:$AECONN_RDMA_ADDRESS" -keyout "$key" -out "$cert" 2>"$work/openssl.log" ||
  { cat "$work/openssl.log"; echo '0 passed, 1 failed'; exit 1; }

run() {  # NAME PROGRAM ARGUMENTS...
  if timeout 250 "${@:2}" >"$work/out" 2>&1; then
    passed=$((passed + 1)); echo "ok $1: $(tail -n 1 "$work/out" | sed 's/ passed.*/ checks/')"
  else
    failed=$((failed + 1)); echo "FAIL $1: status $?"; tail -c 2000 "$work/out"
  fi
}
for program in "$at"/{loops,streams}-* "$at/beast"; do
  [ -x "$program" ] || continue
  run "${program##*/}, rdma" "$program" "rdma://$AECONN_RDMA_ADDRESS:0?keepalive=1h" keepalive=1h "$cert" "$key"
done
# Two of them over TLS, which has bytes of its own to flush.
if grep -q AECONN_TLS=1 "$at/../../flags"; then
  for program in "$at"/loops-{poll,libuv}; do
    [ -x "$program" ] || continue
    run "${program##*/}, tls+rdma" "$program" \
      "tls+rdma://$AECONN_RDMA_ADDRESS:0?keepalive=1h&cert=$cert&key=$key" "keepalive=1h&ca=$cert"
  done
fi
echo "$passed passed, $failed failed"
[ $failed = 0 ]
