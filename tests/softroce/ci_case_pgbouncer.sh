#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# pgbouncer with URLs over rdma and tls+rdma, at both ends, between psql, aeconn-proxy and
# PostgreSQL. tests/drop_ins/pgbouncer.sh tests other transports and everything else.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/../clients/kit"
# shellcheck source=tests/drop_ins/kit_pgbouncer
. tests/drop_ins/kit_pgbouncer
[ -x "$proxy" ] || { fail aeconn-proxy 'it is not built'; total; exit; }
find_postgres
choose_pgbouncer "${RELEASE:-bookworm}" || { total; exit; }
at=$AECONN_RDMA_ADDRESS
start_postgres "$at" || { total; exit; }
write_proxy
# pgbouncer and the proxies run as a user that is not root.
ulimit -l unlimited
chmod a+rw /dev/infiniband/*

secret="cert=$work/pg/cert&key=$work/pg/key"
start_proxy --listen "rdma://$at:0" --listen "tls+rdma://$at:0?$secret" --connect "unix://$work/pg/far/.s.PGSQL.5432"
behind=$server tls_behind=${urls[1]%%\?*}
databases="rdma = host=${urls[0]} dbname=postgres
tls = host=$tls_behind?ca=$work/pg/server.pem dbname=postgres
down = host=rdma://$at:1 dbname=postgres
stranger = host=$tls_behind?ca=$work/pg/other.pem dbname=postgres"
write_ini main <<<"client_login_timeout = 30
query_wait_timeout = 30
unix_socket_dir = $work/pg/own
aeconn_listen = rdma://$at:0 tls+rdma://$at:0?$secret"
start_pgbouncer main || { total; exit; }
pooler=$server pooler_log=$log tls=${urls[1]%%\?*}
start_proxy --listen "unix://$work/pg/rdma/.s.PGSQL.5432" --connect "${urls[0]}" && near=$server
start_proxy --listen "unix://$work/pg/tls/.s.PGSQL.5432" --connect "$tls?ca=$work/pg/server.pem" && near_tls=$server
log=$pooler_log

query='COPY (SELECT i, md5(i::text) FROM generate_series(1, 5000) i) TO STDOUT'
far -c "$query" >"$work/rows"
sum=$(md5sum <"$work/rows")
through() { ask 100 "$work/pg/$1" 5432 "${@:2}"; }  # TRANSPORT DATABASE [ARGUMENTS...]
for front in rdma tls; do
  for back in rdma tls; do is "$front, then $back: SELECT" 42 "$(through $front $back -c 'SELECT 6 * 7')"; done
  is "$front, then $front: COPY of 5000 rows out" "$sum" "$(through $front $front -c "$query" | md5sum)"
  is "$front, then $front: and in" 5000 "$(through $front $front -c 'CREATE TEMP TABLE copied (i int, text text)' \
    -c "\\copy copied FROM '$work/rows'" -c 'SELECT count(*) FROM copied')"
  out=$(PGPASSWORD=secret timeout 100 "$bin/pgbench" -n -c 5 -t 10 -h "$work/pg/$front" -U postgres -f <(echo 'SELECT 1') $front 2>&1)
  has "$front, then $front: pgbench with 5 clients" 'actually processed: 50/50' "$out"
done
has 'SHOW CLIENTS: the address and the transport' "\|${at//./\\.}\|.*\|tls\+rdma\|" "$(through tls pgbouncer -c 'SHOW CLIENTS')"
has 'SHOW SERVERS: the address and the transport' "\|${at//./\\.}\|${tls_behind##*:}\|.*\|tls\+rdma\|" "$(through tls pgbouncer -c 'SHOW SERVERS')"
through rdma down -c 'SELECT 1' >"$work/down" &
client=$!
has 'a certificate that is refused: the client has an error' 'FATAL|ERROR' "$(through rdma stranger -c 'SELECT 1')"
logs 'a certificate that is refused: a sentence' 'WARNING S-.*certificate'
wait $client
has 'a server that is down: the client has an error' 'FATAL|ERROR' "$(cat "$work/down")"
logs 'a server that is down: a sentence' "WARNING S-.*rdma.*$at:1"
kill -KILL "$behind" && wait "$behind" 2>/dev/null
has 'a server that vanishes: the client has an error' 'FATAL|ERROR|closed the connection' "$(through rdma rdma -c 'SELECT 1' 2>&1)"
stop "$pooler"
is 'SIGTERM ends pgbouncer, as ever with status 1' 1 "$status"
stop "$near"
stop "$near_tls"
total
