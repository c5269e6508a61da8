#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The module in the distributions' redis-server and valkey-server, which are unpacked and never
# installed: each transport of this machine, configuration, replication, MIGRATE, refusals, and the
# end; and a server that is too old for it. AECONN_SERVERS="sid:redis bookworm-backports:valkey"
# selects servers.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/../clients/kit"

# shellcheck source=tests/drop_ins/kit
. tests/drop_ins/kit
make_certificate 127.0.0.1 || { total; exit 1; }
tls="cert=$work/cert&key=$work/key"
"${CC:-cc}" -shared -fPIC -o "$work/misfit.so" tests/drop_ins/misfit.c || fail 'misfit.so' 'it is not built'
has_setting() { [ -n "$(ask "$at" CONFIG GET "$1")" ]; }  # older releases lack some
tools_cli() { tools/foreign --run "$folder" "$kind-cli" "$@" 2>&1; }
refused() {  # NAME SENTENCE OPTIONS...
  local name=$1 sentence=$2
  shift 2
  run --port "$(free_port)" "$@"
  ended "$server"
  is "$(t "$name"): the server ends" 1 "$status"
  has "$(t "$name"): it says why" "$sentence" "$(cat "$log")"
}

for which in ${AECONN_SERVERS:-trixie:redis sid:redis sid:valkey}; do
  choose $which || continue
  sock=$work/$release.$kind.sock
  own=$(free_port) tcp=$(free_port) tls_port=$(free_port)
  listen=("tcp://127.0.0.1:$tcp" "unix://$sock" "tls://127.0.0.1:$tls_port?$tls" "tls+unix://$sock.tls?$tls"
    "shm://$sock.shm" "tls+shm://$sock.tls-shm?$tls")
  : >"$work/$which.conf"
  run "$work/$which.conf" --port "$own" --enable-debug-command yes --loadmodule "$module" "${listen[@]}"
  main=$server
  at=tcp://127.0.0.1:$tcp
  for url in "$at" "unix://$sock" "tls://127.0.0.1:$tls_port?ca=$work/cert" "tls+unix://$sock.tls?verify=no" \
    "shm://$sock.shm" "tls+shm://$sock.tls-shm?verify=no"; do
    scheme=${url%%:*}
    is "$(t "$scheme: PING")" PONG "$(ask "$url" PING)"
    is "$(t "$scheme: SET and GET")" 'OK hello' "$(ask "$url" SET greeting hello) $(ask "$url" GET greeting)"
  done
  has "$(t 'CLIENT LIST has real addresses')" "addr=127.0.0.1:[0-9]+ laddr=127.0.0.1:$tcp " "$(ask "$at" CLIENT LIST)"
  has "$(t 'INFO: the listener, and our counters')" $'bind=tcp://127.0.0.1\naeconn_tcp_accepted:[1-9]' "$(ask "$at" INFO everything)"

  head -c 20000000 /dev/urandom | base64 -w0 >"$work/large"
  is "$(t 'a value of 26 MB')" "OK $(md5sum <"$work/large")" \
    "$(tools_cli -s "$sock" -x SET large <"$work/large") $(tools_cli -s "$sock" GET large | head -c -1 | md5sum)"
  if has_setting io-threads; then
    ask "$at" CONFIG SET io-threads 3 >/dev/null  # an error in releases that cannot change it
    is "$(t 'io-threads are put back to 1')" $'io-threads\n1' "$(ask "$at" CONFIG GET io-threads)"
  fi

  channel=repl-rdb-channel
  [ $kind = redis ] || channel=dual-channel-replication-enabled
  if has_setting $channel; then
    ask "$at" CONFIG SET $channel yes >/dev/null
    is "$(t "$channel is put back to no")" $channel$'\nno' "$(ask "$at" CONFIG GET $channel)"
    has "$(t 'the log says why')" "$channel stays no, not yes" "$(cat "$log")"
  fi

  # ---- settings ---------------------------------------------------------------------------------
  second=$(free_port)
  is "$(t 'CONFIG SET listens on another URL')" 'OK PONG' \
    "$(ask "$at" CONFIG SET aeconn.listen "${listen[*]} tcp://127.0.0.1:$second") $(ask "tcp://127.0.0.1:$second" PING)"
  has "$(t 'CONFIG SET refuses a bad URL')" 'no transport nonsense' "$(ask "$at" CONFIG SET aeconn.listen nonsense://x)"
  through="tls?ca=$work/cert"
  is "$(t 'CONFIG SET aeconn.replicate')" OK "$(ask "$at" CONFIG SET aeconn.replicate "$through")"
  for wrong in 'nonsense:no transport nonsense' 'unix:unix leads to a path' 'tls?colour=red:no option colour' \
    'tls|tcp:must not be followed by tcp' 'tls?ca=/nowhere:/nowhere. No such file'; do
    has "$(t "not ${wrong%%:*}")" "^ERR .*${wrong#*:}" "$(ask "$at" CONFIG SET aeconn.replicate "${wrong%%:*}")"
  done
  is "$(t 'nothing has changed')" $'aeconn.replicate\n'"$through" "$(ask "$at" CONFIG GET aeconn.replicate)"
  is "$(t 'CONFIG REWRITE')" OK "$(ask "$at" CONFIG REWRITE)"
  has "$(t 'it is in the file')" \
    "aeconn.listen .*127.0.0.1:$second"$'\n'"aeconn.replicate .*tls[?]ca=$work/cert" "$(grep '^aeconn' "$work/$which.conf")"
  is "$(t 'CONFIG SET stops listening')" OK "$(ask "$at" CONFIG SET aeconn.listen "${listen[*]}")"
  has "$(t 'nobody is there any more')" 'Connection refused' "$(ask "tcp://127.0.0.1:$second" PING)"
  if has_setting rdma-port; then  # without rdma-bind; over rdma: tests/softroce/case_redis.sh
    has "$(t 'CONFIG SET rdma-port')" '^OK|Unable to listen on this port' "$(ask "$at" CONFIG SET rdma-port 7001)"
    has "$(t 'INFO has the URLs after that')" "name=rdma,bind=tcp://127.0.0.1:$tcp unix" "$(ask "$at" INFO server)"
    is "$(t 'CONFIG SET rdma-port 0')" OK "$(ask "$at" CONFIG SET rdma-port 0)"
    has "$(t 'INFO has nothing else then')" "name=rdma,bind=[^,]*key"$'\r?\n' "$(ask "$at" INFO server)"
  fi

  # ---- replication, MIGRATE ---------------------------------------------------------------------
  is "$(t 'many keys')" OK "$(ask "$at" DEBUG POPULATE 20000 key 100)"
  replica=$(free_port)
  run --port 0 --loadmodule "$module" "tcp://127.0.0.1:$replica"
  to=tcp://127.0.0.1:$replica
  for from in "tcp://127.0.0.1 $tcp" "tls://127.0.0.1?ca=$work/cert $tls_port" "unix://$sock 1"; do
    scheme=${from%%:*}
    diskless=disabled  # otherwise Valkey reads from the connection on another thread
    [ "$scheme" != tls ] || diskless=swapdb
    ask "$to" CONFIG SET repl-diskless-load $diskless >/dev/null
    # shellcheck disable=SC2086
    is "$(t "REPLICAOF $scheme://")" OK "$(ask "$to" REPLICAOF $from)"
    in_step() { ask "$to" INFO replication | grep -q 'master_link_status:up'; }
    soon in_step
    ask "$at" SET "over-$scheme" yes >/dev/null
    arrived() { [ "$(ask "$to" GET "over-$scheme")" = yes ]; }
    soon arrived
    is "$(t "a write arrives over $scheme")" yes "$(ask "$to" GET "over-$scheme")"
    is "$(t "all keys are there, over $scheme")" "$(ask "$at" DBSIZE)" "$(ask "$to" DBSIZE)"
    ask "$to" REPLICAOF NO ONE >/dev/null
  done
  ask "$at" SET wanderer home >/dev/null
  is "$(t 'MIGRATE over tls')" OK "$(ask "$to" MIGRATE "tls://127.0.0.1?ca=$work/cert" "$tls_port" over-tcp 0 5000 REPLACE)"
  is "$(t 'the key has moved')" '' "$(ask "$to" GET over-tcp)"

  # Here replication would use the server's own tls.
  is "$(t 'REPLICAOF with tls-replication')" 'OK OK' \
    "$(ask "$to" CONFIG SET tls-cert-file "$work/cert" tls-key-file "$work/key" tls-ca-cert-file "$work/cert" tls-replication yes) \
$(ask "$to" REPLICAOF "unix://$sock" 1)"
  soon in_step
  has "$(t 'it is in step')" 'master_link_status:up' "$(ask "$to" INFO replication)"
  ask "$to" REPLICAOF NO ONE >/dev/null
  ask "$to" REPLICAOF nonsense://x 1 >/dev/null
  complains() { grep -q 'no transport nonsense' "$log"; }
  soon complains
  is "$(t 'an address of no transport is a line in the log')" 0 "$(complains; echo $?)"
  ask "$to" REPLICAOF "tls://127.0.0.1?ca=$work/cert" "$tcp" >/dev/null
  failed() { grep -q 'TLS handshake with 127.0.0.1' "$log"; }
  soon failed
  is "$(t 'a connection that fails is, too, and the server goes on')" '0 PONG' "$(failed; echo $?) $(ask "$to" PING)"
  ask "$to" REPLICAOF NO ONE >/dev/null

  # ---- while a script runs, others get BUSY ------------------------------------------------------
  ask "$at" CONFIG SET busy-reply-threshold 50 >/dev/null
  ask "$at" EVAL 'while true do end' 0 >"$work/$which.script" &
  script=$!
  busy() { ask "unix://$sock" PING | grep -q BUSY; }
  soon busy
  is "$(t 'SCRIPT KILL over a connection of ours')" OK "$(ask "$at" SCRIPT KILL)"
  wait $script

  ask "tls://127.0.0.1:$tls_port?ca=$work/cert" REPLICAOF NO ONE >/dev/null
  ask "tcp://127.0.0.1:$replica" SHUTDOWN NOSAVE >"$work/out"
  ended "$server"
  is "$(t 'SHUTDOWN over a connection of ours')" 0 "$status"
  (while ask "$at" INCR load >/dev/null; do :; done) &
  load=$!
  : >"$work/$which.tls"
  (sleep 100 | timeout 100 openssl s_client -connect "127.0.0.1:$tls_port" -CAfile "$work/cert" -msg \
    >"$work/$which.tls" 2>&1) &
  greeted() { grep -q 'Verify return code' "$work/$which.tls"; }
  soon greeted
  stop "$main"
  is "$(t 'SIGTERM under load')" 0 "$status"
  wait $load
  has "$(t 'the end is said over tls')" 'close_notify' "$(grep '<<<.*Alert' "$work/$which.tls")"
  is "$(t 'no socket is left')" '' "$(find "$work" -name '*.sock*')"

  run "$work/$which.conf"
  is "$(t 'a server that starts from what CONFIG REWRITE wrote has loadmodule and our settings')" \
    'PONG PONG '$'aeconn.replicate\n'"$through" \
    "$(ask "unix://$sock" PING) $(ask "tcp://127.0.0.1:$second" PING) $(ask "$at" CONFIG GET aeconn.replicate)"
  stop "$server"

  # ---- killed while a child of it saves ---------------------------------------------------------
  run --port "$own" --enable-debug-command yes --rdb-key-save-delay 10000 --loadmodule "$module" "${listen[@]}"
  ask "$at" DEBUG POPULATE 20000 key 10 >/dev/null
  is "$(t 'BGSAVE')" 'Background saving started' "$(ask "$at" BGSAVE)"
  child=$(sed -n 's/.*saving started by pid //p' "$log")
  saves() { [ -e "$log.d/temp-$child.rdb" ]; }
  soon saves  # earlier it may not yet have closed the server's listening ports
  kill -STOP "$child"  # it would end by itself soon after its parent
  kill -KILL "$server"
  wait "$server" 2>/dev/null
  run --port "$own" --loadmodule "$module" "${listen[@]}"
  is "$(t 'a server that was killed while it saves starts again at once')" 'PONG 0' \
    "$(ask "$at" PING) $(kill -KILL "$child"; echo $?)"
  stop "$server"

  # ---- in a cluster: replication by the module, the bus unchanged --------------------------------
  near=$(free_port) announced=$(free_port)
  run --port "$near" --cluster-enabled yes --cluster-port "$(free_port)" --cluster-announce-port "$announced" \
    --loadmodule "$module" "tls://127.0.0.1:$announced?$tls"
  primary=$server node=tcp://127.0.0.1:$near
  far=$(free_port) bus=$(free_port)
  run --port "$far" --cluster-enabled yes --cluster-port "$bus" --loadmodule "$module" --aeconn.replicate "tls?ca=$work/cert"
  is "$(t 'CLUSTER MEET')" OK "$(ask "$node" CLUSTER MEET 127.0.0.1 "$far" "$bus")"
  id=$(ask "$node" CLUSTER MYID)
  replicates() { [ "$(ask "tcp://127.0.0.1:$far" CLUSTER REPLICATE "$id")" = OK ]; }
  soon replicates
  to=tcp://127.0.0.1:$far
  soon in_step
  has "$(t 'replication inside a cluster goes over tls')" "laddr=127.0.0.1:$announced .*cmd=(psync|replconf)" \
    "$(ask "$node" CLIENT LIST TYPE replica)"
  stop "$server" && stop "$primary"

  # ---- refusals ----------------------------------------------------------------------------------
  refused 'a bad URL' 'no transport nonsense' --loadmodule "$module" nonsense://x
  refused 'a bad aeconn.replicate' '/nowhere: No such file' --loadmodule "$module" --aeconn.replicate 'tls?ca=/nowhere'
  refused 'io-threads' 'io-threads has to be 1, and is 2' --io-threads 2 --loadmodule "$module" tcp://127.0.0.1:0
  [ -e /sys/class/infiniband ] && [ -n "$(ls /sys/class/infiniband)" ] ||
    refused 'no device' 'RDMA|device' --loadmodule "$module" rdma://127.0.0.1:0
  if [ $kind = redis ]; then  # Valkey's modules find names linked with them before preloaded ones
    for misfit in 'a function more:types of connections' 'a function less:types of connections' \
      'constant:types of connections' 'connection:connections' 'listener:listeners'; do
      LD_PRELOAD=$work/misfit.so MISFIT=${misfit%%:*} refused "another layout, ${misfit%%:*}" \
        "aeconn: ${misfit#*:} of this server are not laid out as those of Redis $version: it is patched" \
        --loadmodule "$module" tcp://127.0.0.1:0
    done
  fi
  run --port "$own"
  refused 'a port in use' 'ddress already in use' --loadmodule "$module" "tcp://127.0.0.1:$own"
  has "$(t 'a load after the start')" ERR "$(ask "tcp://127.0.0.1:$own" MODULE LOAD "$module")"
  is "$(t 'the server goes on')" PONG "$(ask "tcp://127.0.0.1:$own" PING)"
  stop "${servers[-2]}"
done
# The version is asked first: Redis 7.0 has nothing that the other refusals could be true of.
if choose bookworm:redis; then
  for name in redis valkey; do
    refused "a server that is too old, aeconn-$name.so" \
      "aeconn: this is Redis 7[.]0[.][0-9]+, and the module serves Redis 7[.]2, .* and Valkey 7[.]2, .*: use one of these" \
      --loadmodule "$build/aeconn-$name.so" tcp://127.0.0.1:0
  done
fi
total
