#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The distribution's clients and servers over rdma through aeconn-proxy, with and without TLS.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/../clients/kit"
# shellcheck source=tests/clients/kit_proxy
. tests/clients/kit_proxy
# A build without the examples has nothing to test.
[ -x "$proxy" ] || { fail aeconn-proxy 'it is not built'; total; exit; }

at=$AECONN_RDMA_ADDRESS:0
redis_behind 'unix, rdma, unix' "rdma://$at" '' 200
if "$proxy" --connect 'tls://127.0.0.1:1' 2>&1 | grep -q 'tls is not available'; then
  echo 'No test over TLS: this build is without it.'
elif make_certificate "$AECONN_RDMA_ADDRESS"; then
  carried="tls+rdma://$at?cert=$work/cert.pem&key=$work/key.pem" query="?ca=$work/cert.pem"
  redis_behind 'unix, tls+rdma, unix' "$carried" "$query" 200
  psql_behind 'unix, tls+rdma, unix' "$carried" "$query" 2000
  between "$carried" "$query" "$work/late.sock" "$work/late_near.sock" --loops 2 && {
    timeout 200 python3 -B tests/clients/proxy_ends.py "$work/late_near.sock" "$work/late.sock" 16 \
      "$near" "$far" >"$work/out" 2>&1
    is 'two loops, a reader that is late, half-close' $'the writer had to wait\nthe same' \
      "$(head -n 2 "$work/out")"
    end_between 'two loops, a reader that is late, half-close'
  }
fi
total
