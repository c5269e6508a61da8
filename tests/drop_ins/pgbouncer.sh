#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# pgbouncer of Debian's source with our patch, between psql and PostgreSQL: each transport of this
# machine at both ends, large rows, cancelling, the console, TLS of pgbouncer's own, errors, reload,
# pauses, limits, and the end. AECONN_RELEASES="bookworm trixie" chooses releases.
set -u
waiting=()
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/../clients/kit"
# shellcheck source=tests/drop_ins/kit_pgbouncer
. tests/drop_ins/kit_pgbouncer
[ -x "$proxy" ] || { fail aeconn-proxy 'it is not built'; total; exit; }
find_postgres
start_postgres 127.0.0.1 || { total; exit; }
write_proxy
t() { echo "$release: $1"; }
secret="cert=$work/pg/cert&key=$work/pg/key"
query='COPY (SELECT i, md5(i::text) FROM generate_series(1, 100000) i) TO STDOUT'
far -c "$query" >"$work/rows"
far_sum=$(md5sum <"$work/rows")
postgres=unix://$work/pg/far/.s.PGSQL.5432

# PostgreSQL behind each transport.
start_behind() {
  start_proxy --listen "tcp://127.0.0.1:${behind_port:-0}" --listen "unix://$work/pg/behind" \
    --listen "tls://127.0.0.1:0?$secret" --listen "shm://$work/pg/behind.shm" --connect "$postgres" || return
  behind=$server behind_port=${urls[0]##*:}
}
start_behind || { total; exit; }
behind_tls=${urls[2]%%\?*}

the_server() {  # where psql reaches pgbouncer by a transport: sets `host` and `port`
  host=$work/pg/$1 port=5432
  [ "$1" != tcp ] || { host=127.0.0.1 port=${tcp##*:}; }
}
through() {  # TRANSPORT DATABASE [ARGUMENTS...]
  the_server "$1"
  ask 60 "$host" "$port" "${@:2}"
}
console() { through tcp pgbouncer -c "$1"; }

for release in ${AECONN_RELEASES:-bookworm}; do
  choose_pgbouncer "$release" || continue
  # Since 1.23 SIGTERM waits for clients.
  case $("$program" --version) in 'PgBouncer 1.1'*) fast=TERM code=1 ;; *) fast=QUIT code=0 ;; esac
  databases="own = host=$work/pg/far dbname=postgres
tcp = host=tcp://127.0.0.1:$behind_port dbname=postgres
unix = host=unix://$work/pg/behind dbname=postgres
tls = host=$behind_tls?ca=$work/pg/server.pem dbname=postgres
shm = host=shm://$work/pg/behind.shm dbname=postgres
several = host=tcp://127.0.0.1:$behind_port,unix://$work/pg/behind dbname=postgres
list = host=shm|tcp://127.0.0.1:$behind_port?shm-path=$work/pg/behind.shm dbname=postgres
down = host=tcp://127.0.0.1:1 dbname=postgres
stranger = host=$behind_tls?ca=$work/pg/other.pem dbname=postgres
misspelt = host=tsl://127.0.0.1:$behind_port dbname=postgres"
  write_ini main <<END
client_login_timeout = 15
unix_socket_dir = $work/pg/own
aeconn_listen = tcp://127.0.0.1:0 unix://$work/pg/unix/.s.PGSQL.5432 tls://127.0.0.1:0?$secret shm://$work/pg/listen.shm
END
  start_pgbouncer main || continue
  pooler=$server pooler_log=$log tcp=${urls[0]} tls=${urls[2]%%\?*}
  start_proxy --listen "unix://$work/pg/tls/.s.PGSQL.5432" --connect "$tls?ca=$work/pg/server.pem" || continue
  near_tls=$server
  start_proxy --listen "unix://$work/pg/shm/.s.PGSQL.5432" --connect "shm://$work/pg/listen.shm" || continue
  near_shm=$server
  log=$pooler_log

  # ---- each transport at both ends ---------------------------------------------------------------
  for front in tcp unix tls shm; do
    for back in own tcp unix tls shm; do
      is "$(t "$front, then $back: SELECT")" 42 "$(through $front $back -c 'SELECT 6 * 7')"
    done
    is "$(t "$front, then $front: COPY of 100000 rows out")" "$far_sum" "$(through $front $front -c "$query" | md5sum)"
    is "$(t "$front, then $front: and in")" 100000 "$(through $front $front -c 'CREATE TEMP TABLE copied (i int, text text)' \
      -c "\\copy copied FROM '$work/rows'" -c 'SELECT count(*) FROM copied')"
    is "$(t "$front, then $front: a value of 30 MB")" "$(head -c 30000000 /dev/zero | tr '\0' x | md5sum)" \
      "$(through $front $front -c "SELECT repeat('x', 30000000)" | head -c -1 | md5sum)"
    has "$(t "$front: an error of the server")" 'ERROR: *relation "nowhere" does not exist' \
      "$(through $front $front -c 'SELECT * FROM nowhere')"
    has "$(t "$front: a wrong password")" 'password authentication failed' "$(password=wrong through $front own -c 'SELECT 1')"
    the_server $front
    out=$(PGPASSWORD=secret timeout 100 "$bin/pgbench" -n -c 20 -j 2 -t 50 -h "$host" -p "$port" -U postgres \
      -f <(echo 'SELECT :client_id') $front 2>&1)
    has "$(t "$front, then $front: pgbench with 20 clients")" 'actually processed: 1000/1000' "$out"
  done
  is "$(t 'a list of hosts')" '42 42' "$(through tcp several -c 'SELECT 42') $(through tcp several -c 'SELECT 42')"
  is "$(t 'a list of schemes')" 42 "$(through tcp list -c 'SELECT 6 * 7')"
  PGPASSWORD=secret timeout 60 "$bin/psql" -X -w -U postgres -h "$work/pg/tls" -d tls -c 'SELECT pg_sleep(50)' >"$work/cancelled" 2>&1 &
  client=$!
  # Whether such a query runs. Each has a number of its own: one of before may not have ended yet.
  # shellcheck disable=SC2120  # "soon" passes it
  sleeps() { [ "$(far -c "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT pg_sleep(${1-%})%'")" = 1 ]; }
  soon sleeps 50
  kill -INT $(pgrep -P $client -x psql) && wait $client
  has "$(t 'cancelling passes pgbouncer')" 'canceling statement due to user request' "$(cat "$work/cancelled")"

  # ---- the console -------------------------------------------------------------------------------
  has "$(t 'SHOW CLIENTS has real addresses')" "\|127\.0\.0\.1\|[0-9]+\|127\.0\.0\.1\|${tcp##*:}\|" "$(console 'SHOW CLIENTS')"
  has "$(t 'SHOW CLIENTS: the transport')" '\|tls\|' "$(through tls pgbouncer -c 'SHOW CLIENTS')"
  has "$(t 'SHOW SERVERS: real addresses and the transport')" "\|127\.0\.0\.1\|${behind_tls##*:}\|127\.0\.0\.1\|.*\|tls\|" "$(console 'SHOW SERVERS')"
  has "$(t 'SHOW CONFIG')" 'aeconn_listen\|tcp://127.0.0.1:0 ' "$(console 'SHOW CONFIG')"
  # Its own socket knows the user of this process without a password; that of a URL must not.
  who=("${as[@]}") role=pgbouncer password=none
  has "$(t "the console without a password, on pgbouncer's own socket")" 'PgBouncer' "$(ask 60 "$work/pg/own" 6432 pgbouncer -c 'SHOW VERSION')"
  has "$(t 'but not on that of a URL')" 'FATAL: *(not allowed|password authentication failed)' "$(ask 60 "$work/pg/unix" 5432 pgbouncer -c 'SHOW VERSION')"
  who=() && unset role password
  # No descriptor of a URL is handed to another process.
  has "$(t 'SHOW FDS leaves them out')" '^[0-9]+\|pooler\|.*unix' "$(ask 60 "$work/pg/own" 6432 pgbouncer -c 'SHOW FDS')"
  is "$(t 'SHOW FDS: no client, no server of a URL')" '' "$(ask 60 "$work/pg/own" 6432 pgbouncer -c 'SHOW FDS' | grep -E '\|(client|server)\|.*\|(tcp|tls|shm)\|')"
  has "$(t 'SHOW FDS over a URL: a sentence')" "only on pgbouncer's own sockets" "$(console 'SHOW FDS')"
  console SUSPEND >"$work/out"
  console RESUME >>"$work/out"
  is "$(t 'SUSPEND and RESUME')" 42 "$(through tls tls -c 'SELECT 42')"
  has "$(t 'an online restart is refused: a sentence')" 'cannot reboot with aeconn_listen' "$(timeout 60 "${as[@]}" "$program" -R "$work/pg/main.ini" 2>&1)"
  console PAUSE >"$work/out"
  through tcp tcp -c 'SELECT 42' >"$work/waited" &
  client=$!
  console RESUME >>"$work/out"
  wait $client
  is "$(t 'PAUSE and RESUME')" 42 "$(cat "$work/waited")"

  # ---- errors ------------------------------------------------------------------------------------
  # As with any host, pgbouncer keeps a client waiting for client_login_timeout.
  for back in down stranger misspelt; do
    through tcp $back -c 'SELECT 1' >"$work/$back" &
    waiting+=($!)
  done
  wait "${waiting[@]}"
  waiting=()
  for back in down stranger misspelt; do has "$(t "$back: the client has an error")" 'FATAL|ERROR' "$(cat "$work/$back")"; done
  logs "$(t 'a server that is down: a sentence')" 'WARNING S-.*connect to .*127\.0\.0\.1:1.*refused'
  logs "$(t 'a certificate that is refused: a sentence')" 'WARNING S-.*certificate'
  logs "$(t 'a transport that is none: a sentence')" "ERROR S-.*host=tsl://.*tsl"
  stop "$near_tls"
  start_proxy --listen "unix://$work/pg/tls/.s.PGSQL.5432" --connect "$tls?ca=$work/pg/other.pem"
  near_tls=$server log=$pooler_log
  through tls own -c 'SELECT 1' >/dev/null
  logs "$(t 'a client that refuses the certificate: a sentence')" 'WARNING TLS handshake with 127'
  # The connections to servers are cut, and come back.
  through tcp tcp -c 'SELECT pg_sleep(51)' >"$work/cut" &
  client=$!
  soon sleeps 51
  kill -KILL "$behind" && wait "$behind" 2>/dev/null
  wait $client
  has "$(t 'a server that vanishes: the client has an error')" 'FATAL|ERROR|closed the connection' "$(cat "$work/cut")"
  rm -f "$work/pg/behind" "$work/pg/behind.shm"
  start_behind
  databases=${databases//$behind_tls/${urls[2]%%\?*}} behind_tls=${urls[2]%%\?*} log=$pooler_log
  back() { [ "$(through tcp tcp -c 'SELECT 42')" = 42 ]; }
  soon back && ok "$(t 'and is back')" || fail "$(t 'and is back')" "$(tail -n 5 "$log")"

  # ---- reload ------------------------------------------------------------------------------------
  databases=${databases/tcp:\/\/127.0.0.1:1 /unix://$work/pg/behind }
  sed -i '/^\[pgbouncer/,$!d' "$work/pg/main.ini" && printf '[databases]\n%s\n' "$databases" >>"$work/pg/main.ini"
  cp "$work/pg/other.pem" "$work/pg/cert" && cp "$work/pg/other.key" "$work/pg/key" && own_it
  kill -HUP "$pooler"
  trusts_other() { [ "$(through tls own -c 'SELECT 42')" = 42 ]; }
  soon trusts_other && ok "$(t 'SIGHUP: a new certificate')" || fail "$(t 'SIGHUP: a new certificate')" "$(tail -n 5 "$log")"
  is_back() { [ "$(through tcp down -c 'SELECT 42')" = 42 ]; }
  soon is_back && ok "$(t 'SIGHUP: another URL of a database')" || fail "$(t 'SIGHUP: another URL')" "$(tail -n 5 "$log")"
  echo nonsense >"$work/pg/cert"
  console RELOAD >"$work/out"
  logs "$(t 'RELOAD: a certificate that is none')" 'ERROR aeconn: the certificates in use stay: .*cert'
  is "$(t 'RELOAD: the old one stays')" 42 "$(through tls own -c 'SELECT 42')"
  cp "$work/pg/server.pem" "$work/pg/cert" && cp "$work/pg/server.key" "$work/pg/key" && own_it

  # ---- descriptors, and the end ------------------------------------------------------------------
  console 'RECONNECT' >"$work/out"
  before=$(descriptors "$pooler")
  the_server unix
  for ((i = 0; i < 5; i++)); do
    PGPASSWORD=secret timeout 100 "$bin/pgbench" -n -C -c 10 -j 2 -t 5 -h "$host" -p "$port" -U postgres -f <(echo 'SELECT 1') own >"$work/out" 2>&1
  done
  has "$(t '250 connections that come and go')" 'actually processed: 50/50' "$(cat "$work/out")"
  # PostgreSQL's end is kept by the pool: at most ten.
  as_before() { [ "$(descriptors "$pooler")" -le $((before + 10)) ]; }
  soon as_before && ok "$(t 'no descriptor is left')" || fail "$(t 'no descriptor is left')" "$before before, $(descriptors "$pooler") after"
  through tcp tcp -c 'SELECT pg_sleep(52)' >"$work/cut" &
  client=$!
  soon sleeps 52
  kill -$fast "$pooler"
  ended "$pooler"
  wait $client
  is "$(t "SIG$fast ends pgbouncer, as ever with status $code")" $code "$status"
  has "$(t "SIG$fast: its clients see it")" 'closed the connection' "$(cat "$work/cut")"
  asleep() { sleeps && return 1 || return 0; }
  far -c "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND pid <> pg_backend_pid()" >"$work/out"
  soon asleep
  is "$(t "SIG$fast: no socket is left")" '' "$(find "$work/pg/unix" "$work/pg/listen.shm" -type s 2>/dev/null)"
  has "$(t 'no error in its log')" '^$' "$(grep -E 'FATAL|@src/|assert' "$log")"
  stop "$near_tls"
  stop "$near_shm"

  # ---- limits, TLS of its own --------------------------------------------------------------------
  write_ini few <<END
aeconn_listen = tcp://127.0.0.1:0
client_tls_sslmode = require
client_tls_key_file = $work/pg/server.key
client_tls_cert_file = $work/pg/server.pem
END
  if start_pgbouncer few prlimit --nofile=60; then
    tcp=${urls[0]} host=127.0.0.1
    has "$(t 'client_tls_sslmode over tcp://: without')" 'SSL required' "$(PGSSLMODE=disable through tcp own -c 'SELECT 1')"
    is "$(t 'client_tls_sslmode over tcp://: with')" 42 "$(PGSSLMODE=require through tcp own -c 'SELECT 42')"
    PGPASSWORD=secret timeout 30 "$bin/pgbench" -n -c 40 -j 2 -t 1000 -h 127.0.0.1 -p "${tcp##*:}" -U postgres -f <(echo 'SELECT 1') own >"$work/out" 2>&1
    logs "$(t 'more clients than descriptors: a sentence')" 'Too many open files|too many|descriptor'
    served() { [ "$(PGSSLMODE=require through tcp own -c 'SELECT 42')" = 42 ]; }
    soon served && ok "$(t 'then others are served')" || fail "$(t 'then others are served')" "$(tail -n 5 "$log")"
    kill -INT "$server"
    ended "$server"
    is "$(t 'SIGINT ends pgbouncer')" 0 "$status"
  fi
  write_ini encrypted <<END
aeconn_listen = tls://127.0.0.1:0?$secret unix://$work/pg/unix/.s.PGSQL.5432
client_tls_sslmode = require
client_tls_key_file = $work/pg/server.key
client_tls_cert_file = $work/pg/server.pem
auth_type = hba
auth_hba_file = $work/pg/hba
END
  printf '%s\n' 'local all all peer' 'host all all 127.0.0.1/32 md5' >"$work/pg/hba" && own_it
  if start_pgbouncer encrypted; then
    pooler=$server pooler_log=$log
    start_proxy --listen "unix://$work/pg/near/.s.PGSQL.5432" --connect "${urls[0]%%\?*}?ca=$work/pg/server.pem"
    is "$(t 'client_tls_sslmode: tls:// suffices')" 42 "$(through near own -c 'SELECT 42')"
    who=("${as[@]}")
    has "$(t 'no authentication by peer over a URL')" 'unix socket login rejected' "$(through unix own -c 'SELECT 42')"
    who=()
    stop "$server"
    log=$pooler_log
    stop "$pooler"
  fi

  # ---- mistakes ----------------------------------------------------------------------------------
  mistake() {  # NAME URL SENTENCE [OPTIONS...]
    write_ini wrong <<<"aeconn_listen = $2"
    own_it
    local code
    timeout 60 "${as[@]}" "$program" "${@:4}" "$work/pg/wrong.ini" >"$work/out" 2>&1
    code=$?
    is "$(t "$1: it does not start")" 1 $code
    has "$(t "$1: a sentence")" "$3" "$(grep FATAL "$work/out")"
  }
  mistake 'a transport that is none' tsl://127.0.0.1:0 'aeconn_listen = tsl://127.0.0.1:0: .*tsl'
  mistake 'a port in use' "tcp://127.0.0.1:$behind_port" 'aeconn_listen = tcp://.*in use'
  mistake 'a certificate that is missing' "tls://127.0.0.1:0?cert=$work/pg/none" 'aeconn_listen = tls://.*none'
done
total
