#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# verbs-echo (plain verbs) at both ends, and each of its sides against this library: kv-server,
# conn-perf, request-load.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/../clients/kit"
bench=$build/bench
if [ ! -x "$bench/verbs-echo" ]; then
  # `make test` builds it, builds for sanitizers do not.
  if [ "${CI-}" = true ] && [[ $build != */asan ]]; then
    fail 'verbs-echo' 'it is not built (make bench-programs)'
  else
    echo 'skipped verbs-echo: it is not built (make bench-programs)'
  fi
  total
  exit
fi

client() { timeout 30 "$bench/verbs-echo" client "${at#rdma://}" "$@" 2>&1; }
same() { has "$1" "^\\{.*\"(requests|connected|messages)\": $2, .*\"errors\": 0\\}\$" "$(client "${@:3}")"; }
traffic() {  # NAME: what any echo has to stand
  same "$1: one at a time" 200 --requests 200
  same "$1: 8 connections, 16 under way on each" 3000 --connections 8 --depth 16 --requests 3000
  same "$1: a write for each" 1000 --connections 4 --depth 16 --requests 1000 --separate
  same "$1: larger than a window" 20 --size 70001 --connections 2 --depth 3 --requests 20
  same "$1: small windows" 300 --size 100 --window 1000 --depth 5 --requests 300
  same "$1: new connections" 30 --connect-rate --connections 4 --requests 30
  same "$1: a burst" 4000 --burst 4000
}

if begin "$bench/verbs-echo" server "$AECONN_RDMA_ADDRESS:0"; then
  traffic 'verbs-echo'
  for depth in 1 16; do
    has "request-load against verbs-echo, depth $depth" '"requests": 1000, ' "$(timeout 30 "$bench/request-load" \
      "$at" --protocol echo --value-size 64 -c 4 -d $depth -n 1000 2>&1)"
  done
  has 'request-load against verbs-echo, 300 kB' '"requests": 10, ' "$(timeout 30 "$bench/request-load" \
    "$at" --protocol echo --value-size 300000 -c 2 -d 2 -n 10 2>&1)"
  stop "$server"
  is 'verbs-echo: SIGTERM' 0 "$status"
fi
if begin "$bench/verbs-echo" server "$AECONN_RDMA_ADDRESS:0" --window 100; then
  same 'verbs-echo with small windows' 300 --size 333 --depth 5 --connections 2 --requests 300
  stop "$server"
fi
if begin "$kv_server" --listen "rdma://$AECONN_RDMA_ADDRESS:0"; then
  has 'verbs-echo asks kv-server' '"messages": 6000, "reply_bytes": 7000, .*"errors": 0' \
    "$(client --burst 6000 --text 'PING\r\n' --reply '+PONG\r\n')"
  has 'verbs-echo notices other replies' 'replies are not as expected' \
    "$(client --burst 60 --text 'PING\r\n' --reply '+POND\r\n')"
  has 'request-load against kv-server' '"requests": 1000, ' "$(timeout 30 "$bench/request-load" \
    "$at" --prepare 'SET key value' --value-size 64 --command 'GET key' -c 4 -d 4 -n 1000 2>&1)"
  has 'request-load against kv-server: new connections' '"requests": 50, ' "$(timeout 30 "$bench/request-load" \
    "$at" --new-connections -c 4 -n 50 2>&1)"
  stop "$server"
fi
if [ -x "$build/conn-perf" ]; then
  if begin "$build/conn-perf" server --echo --listen "rdma://$AECONN_RDMA_ADDRESS:0"; then
    traffic 'conn-perf'
    stop "$server"
  fi
fi
total
