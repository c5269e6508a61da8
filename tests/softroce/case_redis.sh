#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The module in redis-server and valkey-server over rdma and tls+rdma: clients, interrupted
# replication, MIGRATE, operations that block the server, connections that come and go, and the end
# of the server. With the argument `long`: also redis-server, hiredis and libvalkey, a full
# synchronisation of 100 MB that is cut in the middle, and 2,000 connections. With AECONN_VALKEY, a
# folder with the programs of a Valkey built with RDMA: its clients, and that its server refuses the
# module (tests/valkey/run). AECONN_SERVERS selects servers, as for tests/drop_ins/redis.sh, which
# tests other transports and other refusals.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/../clients/kit"
# shellcheck source=tests/drop_ins/kit
. tests/drop_ins/kit
# shellcheck source=tests/drop_ins/tell
. tests/drop_ins/tell
patience=60  # the processors are emulated
soon() {
  local end=$((SECONDS + 120))
  while [ $SECONDS -lt $end ]; do
    "$@" && return 0
    sleep 0.1
  done
  return 1
}
long='' keys=5000 size=100 connections=40
[ "${1-}" != long ] || long=yes keys=100000 size=1000 connections=2000
address=$AECONN_RDMA_ADDRESS
if "$kv_server" --listen tls://127.0.0.1:0 2>&1 | grep -q 'tls is not available'; then
  echo 'SKIPPED: a build without TLS: the servers have it, and so do these tests'
  total
  exit
fi
make_certificate "$address" || { total; exit 1; }
export PYTHONDONTWRITEBYTECODE=1

in_step() { [ "$(field "$to" master_link_status)" = up ]; }
at_rest() { [ "$(field "$at" connected_clients)" = 1 ]; }
descriptors() { find "/proc/$1/fd" -mindepth 1 | wc -l; }
caught_up() { [ "$(tell "$to" GET mark)" = "$1" ]; }
synchronised() { [ "$(field "$at" sync_full)" = "$1" ]; }
transfers() { [ "$(field "$to" master_sync_in_progress)" = 1 ]; }
same_data() { [ "$(tell "$at" DEBUG DIGEST)" = "$(tell "$to" DEBUG DIGEST)" ]; }

# REPLICAOF over ADDRESS PORT; the link is cut on both sides, and the replica must catch up by
# itself.
replication() {  # SCHEME ADDRESS PORT DISKLESS
  local name="$1, repl-diskless-load $4" full partial
  tell "$to" CONFIG SET repl-diskless-load "$4" >/dev/null
  tell "$at" CONFIG RESETSTAT >/dev/null
  is "$(t "$name: REPLICAOF")" OK "$(tell "$to" REPLICAOF "$2" "$3")"
  if [ "$long" = yes ]; then
    soon transfers
    is "$(t "$name: the link is cut while the data is under way")" 1 "$(tell "$at" CLIENT KILL TYPE replica)"
  fi
  soon in_step
  is "$(t "$name: it is in step")" up "$(field "$to" master_link_status)"
  is "$(t "$name: all keys are there")" "$(tell "$at" DBSIZE)" "$(tell "$to" DBSIZE)"
  full=$(field "$at" sync_full)
  tell "$at" DEL mark >/dev/null
  for cut in 'replica at' 'master to'; do
    # shellcheck disable=SC2086
    set -- $cut
    partial=$(field "$at" sync_partial_ok)
    local from=$at
    [ "$2" = at ] || from=$to
    is "$(t "$name: CLIENT KILL TYPE $1")" 1 "$(tell "$from" CLIENT KILL TYPE "$1")"
    tell "$at" SET mark "$1" >/dev/null
    soon caught_up "$1"
    is "$(t "$name: a write arrives after that")" "$1" "$(tell "$to" GET mark)"
    is "$(t "$name: by a partial resynchronisation")" "$full $((partial + 1))" \
      "$(field "$at" sync_full) $(field "$at" sync_partial_ok)"
  done
  soon same_data
  is "$(t "$name: the data is the same")" 0 "$(same_data; echo $?)"
  tell "$to" REPLICAOF NO ONE >/dev/null
}

# The programs of tests/adapters: blocking and asynchronous contexts, time-outs, reconnecting.
contexts() {  # SERVER PROGRAM URL
  local scheme=${3%%:*} status
  if [ ! -x "$build/tests/adapters/$2" ]; then
    echo "SKIPPED: $2 with $kind of $release, $scheme: its library could not be had"
    return
  fi
  AECONN_SLOWER=$((5 * ${AECONN_SLOWER:-1})) timeout 200 "$build/tests/adapters/$2" "$3" "$1" >"$work/contexts" 2>&1
  status=$?
  if [ $status = 0 ]; then ok "$(t "$2, $scheme")"
  else fail "$(t "$2, $scheme")" "status $status: $(tail -c 1500 "$work/contexts")"
  fi
}
migrates() {  # SCHEME ADDRESS PORT: a key from the replica that was
  local key=wanderer.$1
  tell "$to" SET "$key" home >/dev/null
  is "$(t "$1: MIGRATE")" OK "$(tell "$to" MIGRATE "$2" "$3" "$key" 0 60000)"
  is "$(t "$1: the key is there, and here no more")" 'home ' "$(tell "$at" GET "$key") $(tell "$to" GET "$key")"
}

case_of() {  # RELEASE:KIND
  choose "$1" || return
  local listen=() primary replica urls loads=() each before
  at=7001 to=7002
  listen=("rdma://$address:6379" "tls+rdma://$address:6380?cert=$work/cert&key=$work/key")
  urls=("rdma://$address:6379" "tls+rdma://$address:6380?ca=$work/cert")
  run --port "$at" --enable-debug-command yes --loadmodule "$module" "${listen[@]}"
  primary=$server
  local primary_log=$log
  run --port "$to" --enable-debug-command yes --loadmodule "$module"
  replica=$server
  is "$(t 'both servers run')" 'PONG PONG' "$(tell "$at" PING) $(tell "$to" PING)"
  head -c 700000 /dev/urandom | base64 -w 0 >"$work/value"
  for each in "${urls[@]}"; do
    local name=${each%%:*}
    is "$(t "$name: SET of 1 MB")" OK "$( { printf 'SET large '; cat "$work/value"; echo; } | timeout 60 "$kv_cli" -u "$each" 2>&1)"
    is "$(t "$name: GET gives the same")" "$(md5sum <"$work/value")" "$(ask "$each" GET large | tr -d '\n' | md5sum)"
  done
  has "$(t 'CLIENT LIST has real addresses')" "addr=$address:[0-9]+ laddr=$address:6379 " "$(ask "${urls[0]}" CLIENT LIST)"
  if [ "${AECONN_SOFTROCE-}" = 1 ]; then  # where no other program uses its addresses
    local other="${address%.*}.9"
    ip addr replace "$other/32" dev "$(ip -o addr show to "$address" | awk '{print $2}')"
    for each in "${urls[0]}?source=$other" "${urls[1]}&source=$other"; do
      local name=${each%%:*}
      has "$(t "$name: without a password no client from another address")" '^DENIED .*protected mode' "$(ask "$each" PING)"
      is "$(t "$name: with protected-mode no, it is served")" 'OK PONG' \
        "$(tell "$at" CONFIG SET protected-mode no) $(ask "$each" PING)"
      tell "$at" CONFIG SET protected-mode yes >/dev/null
    done
  fi
  local has_port=''
  [ "$(tell "$at" CONFIG GET rdma-port)" = 0 ] || has_port=yes  # the reply's length
  if [ -n "$has_port" ]; then  # the server's own settings
    local port=6390 bound any='[*],-\[::\]'
    listeners() { tell "$at" INFO server | grep '^listener.:name=rdma'; }
    for bound in '' '* -::*' "$address"; do
      name="rdma-port, rdma-bind '$bound'"
      is "$(t "$name")" 'OK OK' "$(tell "$at" CONFIG SET rdma-bind "'$bound'") $(tell "$at" CONFIG SET rdma-port $port)"
      is "$(t "$name: PING")" PONG "$(ask "rdma://$address:$port" PING)"
      [ "$bound" = "$address" ] || [ -z "${AECONN_RDMA_ADDRESS6-}" ] ||
        is "$(t "$name: PING over IPv6")" PONG "$(ask "rdma://[$AECONN_RDMA_ADDRESS6]:$port" PING)"
      [ "$bound" = "$address" ] || bound=$any
      has "$(t "$name: INFO has all URLs")" "bind=${urls[0]} tls.*key rdma://$bound:$port,port=$port" "$(listeners)"
      is "$(t "$name: it listens no more")" OK "$(tell "$at" CONFIG SET rdma-port 0)"
      has "$(t "$name: INFO has the others")" "bind=${urls[0]} tls.*key$" "$(listeners)"
    done
    has "$(t 'nobody is at rdma-port any more')" 'refused|rejected' "$(ask "rdma://$address:$port" PING)"
  fi
  if [ "$long" = yes ]; then  # some twenty seconds of time-outs each, so not with each
    local own=hiredis other=libvalkey
    [ "$kind" = redis ] || own=libvalkey other=hiredis
    contexts $primary $own "${urls[0]}"
    contexts $primary $own "${urls[1]}"
    contexts $primary $other "${urls[1]}"
  fi
  tell "$at" FLUSHALL >/dev/null
  if [ -n "${AECONN_VALKEY-}" ]; then
    is "$(t 'valkey-cli --rdma')" PONG "$(timeout 60 "$AECONN_VALKEY/valkey-cli" --rdma -h "$address" PING 2>&1)"
    is "$(t 'valkey-benchmark --rdma')" 2 "$(timeout 100 "$AECONN_VALKEY/valkey-benchmark" --rdma -h "$address" -q \
      -t set,get -n 2000 -c 5 -P 4 2>&1 | tr '\r' '\n' | grep -c 'requests per second')"
    if [ $kind = valkey ]; then
      timeout 60 "$AECONN_VALKEY/valkey-server" --port 7003 --save '' --dir "$work" --loadmodule "$module" \
        >"$work/refuses" 2>&1
      status=$?
      is "$(t 'a Valkey that is built with RDMA does not start with the module')" 1 $status
      has "$(t 'it says why')" 'aeconn: this Valkey is built with RDMA, whose place' "$(cat "$work/refuses")"
    fi
  fi

  tell "$at" DEBUG POPULATE $keys key $size >/dev/null
  replication rdma "rdma://$address" 6379 disabled
  replication tls+rdma "tls+rdma://$address?ca=$work/cert" 6380 swapdb
  migrates rdma "rdma://$address" 6379
  migrates tls+rdma "tls+rdma://$address?ca=$work/cert" 6380
  stop $replica
  is "$(t 'SIGTERM ends the replica')" 0 "$status"

  # ---- what blocks the server, under load -------------------------------------------------------
  for each in "${urls[@]}"; do
    timeout 200 "$kv_cli" -u "$each" -r -1 INCR "load.${each%%:*}" >"$work/load" 2>&1 &
    loads+=($!)
  done
  runs_on() {  # NAME: both loads get answers
    local one two
    one=$(tell "$at" GET load.rdma) two=$(tell "$at" GET load.tls+rdma)
    moved() { [ "$(tell "$at" GET load.rdma)" != "$one" ] && [ "$(tell "$at" GET load.tls+rdma)" != "$two" ]; }
    soon moved
    is "$(t "$1: the load goes on")" 0 "$(moved; echo $?)"
  }
  is "$(t 'BGSAVE')" 'Background saving started' "$(ask "${urls[0]}" BGSAVE)"
  saved() { [ "$(field "$at" rdb_bgsave_in_progress)" = 0 ]; }
  soon saved
  is "$(t 'it is saved')" ok "$(field "$at" rdb_last_bgsave_status)"
  runs_on BGSAVE
  tell "$at" CONFIG SET busy-reply-threshold 50 >/dev/null
  ask "${urls[1]}" EVAL 'while true do end' 0 >"$work/script" &
  local script=$!
  busy() { tell "$at" PING | grep -q BUSY; }
  soon busy
  is "$(t 'SCRIPT KILL over rdma')" OK "$(ask "${urls[0]}" SCRIPT KILL)"
  wait $script
  has "$(t 'who runs it is told')" 'killed by user' "$(cat "$work/script")"
  is "$(t 'DEBUG SLEEP')" OK "$(ask "${urls[0]}" DEBUG SLEEP 2)"
  tell "$at" CONFIG SET busy-reply-threshold 5000 >/dev/null
  runs_on 'DEBUG SLEEP'

  # ---- they come and go -------------------------------------------------------------------------
  stop "${loads[0]}"
  stop "${loads[1]}"
  soon at_rest
  before=$(descriptors $primary)
  local shaken=$connections
  [ $shaken -lt 1000 ] || shaken=$((shaken / 5))  # each needs a handshake
  is "$(t "$connections connections over rdma, $shaken over tls+rdma")" \
    "$connections came and went"$'\n'"$shaken came and went" \
    "$(AECONN_LIBRARY=$build/libaeconn-c.so timeout 600 python3 tests/drop_ins/come_and_go.py \
      "${urls[0]}" $connections "${urls[1]}" $shaken 2>&1)"
  soon at_rest
  is "$(t 'nobody is left')" 1 "$(field "$at" connected_clients)"
  nothing_open() { [ "$(field "$at" aeconn_rdma_open) $(field "$at" 'aeconn_[a-z0-9_]*_queue_pairs')" = '0 0' ]; }
  soon nothing_open
  is "$(t 'no connection, no queue pair is left')" '0 0' \
    "$(field "$at" aeconn_rdma_open) $(field "$at" 'aeconn_[a-z0-9_]*_queue_pairs')"
  as_before() { [ "$(descriptors $primary)" -le "$before" ]; }
  soon as_before
  is "$(t 'no descriptor is left')" 0 "$(as_before; echo $?)"

  "$kv_cli" -u "${urls[0]}" -r -1 INCR load.rdma >/dev/null 2>&1 &
  loads=($!)
  runs() { [ "$(field "$at" connected_clients)" = 2 ]; }
  soon runs
  stop $primary
  is "$(t 'SIGTERM under load')" 0 "$status"
  wait "${loads[0]}"
  [ "$status" = 0 ] || cat "$primary_log"

  # ---- killed while a child of it saves ---------------------------------------------------------
  run --port "$at" --enable-debug-command yes --rdb-key-save-delay 10000 --loadmodule "$module" "${listen[@]}"
  tell "$at" DEBUG POPULATE 20000 key 10 >/dev/null
  is "$(t 'BGSAVE over rdma')" 'Background saving started' "$(ask "${urls[0]}" BGSAVE)"
  local child
  child=$(sed -n 's/.*saving started by pid //p' "$log")
  saves() { [ -e "$log.d/temp-$child.rdb" ]; }
  soon saves  # earlier it may not yet have closed the server's listening ports
  kill -STOP "$child"  # it would end by itself soon after its parent
  kill -KILL "$server"
  wait "$server" 2>/dev/null
  local too=()
  [ -z "$has_port" ] || too=(--rdma-port 6390)
  run --port "$at" --loadmodule "$module" "${listen[@]}" "${too[@]}"
  is "$(t 'a server that was killed while it saved listens again at once, over rdma and tls+rdma')" \
    'PONG PONG 0' "$(ask "${urls[0]}" PING) $(ask "${urls[1]}" PING) $(kill -KILL "$child"; echo $?)"
  [ -z "$has_port" ] ||
    has "$(t '--rdma-port')" "PONG.*rdma://$any:6390,port=6390" "$(ask "rdma://$address:6390" PING) $(listeners)"
  stop "$server"
}

for which in ${AECONN_SERVERS:-${long:+trixie:redis} sid:valkey}; do case_of "$which"; done
total
