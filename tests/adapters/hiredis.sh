#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# hiredis and libvalkey over this library's connections, against kv-server, redis-server 8 and
# valkey-server 9, unpacked. Over rdma: tests/softroce/case_hiredis.sh.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/../clients/kit"
skip() {
  echo "SKIPPED: hiredis and libvalkey: $1"
  total
  exit
}
tests/adapters/programs "$build" docs/clients.md >"$work/programs" 2>&1
status=$?
[ $status != 77 ] || skip "$(tail -n 1 "$work/programs")"
[ $status = 0 ] || { fail 'the programs are built' "$(cat "$work/programs")"; total; exit; }
at=$build/tests/adapters

tls=yes
if "$kv_server" --listen tls://127.0.0.1:0 2>&1 | grep -q 'tls is not available'; then tls=''; fi
cert=$work/cert.pem key=$work/key.pem
[ -z "$tls" ] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=clients \
  -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout "$key" -out "$cert" 2>"$work/openssl.log" ||
  fail 'a certificate is made' "$(cat "$work/openssl.log")"

run() {  # NAME PROGRAM ARGUMENTS...: one case
  local wrong status
  timeout 120 "${@:2}" >"$work/out" 2>&1
  status=$?
  wrong=$(grep '^FAIL ' "$work/out")
  if [ $status = 0 ]; then ok "$1: $(tail -n 1 "$work/out" | sed 's/ passed.*/ checks/')"
  else fail "$1" "${wrong:-status $status: $(tail -c 1500 "$work/out")}"
  fi
}
both() {  # NAME URL PROCESS
  run "hiredis, $1" "$at/hiredis" "$2" "$3"
  run "libvalkey, $1" "$at/libvalkey" "$2" "$3"
}

listen=(--listen tcp://127.0.0.1:0 --listen "unix://$work/kv.sock")
[ -z "$tls" ] || listen+=(--listen tls://127.0.0.1:0 --listen "tls+unix://$work/tls.sock" --tls-cert "$cert" --tls-key "$key")
if start "${listen[@]}"; then
  for url in "${urls[@]}"; do
    case $url in
      tls*) both "kv-server, ${url%%:*}" "$url?ca=$cert&server-name=localhost" "$server" ;;
      *) both "kv-server, ${url%%:*}" "$url" "$server" ;;
    esac
  done
  # The programs of the page, unchanged.
  for program in "$at"/page-*.cc; do
    is "docs/clients.md, program ${program//[!0-9]/}" 'PONG hello' \
      "$(timeout 20 "${program%.cc}" "${urls[0]}" 2>&1 | tr '\n' ' ' | sed 's/ $//')"
  done
  stop "$server"
fi

# ---- Redis's and Valkey's servers ----------------------------------------------------------------
# Starts one at a free port; sets `server`, `port`, `tls_port`.
real() {  # FOLDER PROGRAM
  local i options
  for ((i = 0; i < 10; i++)); do
    port=$((20000 + RANDOM % 10000)) tls_port=$((port + 1))
    options=(--port "$port" --bind 127.0.0.1 --unixsocket "$work/$2.sock" --save '' --appendonly no --dir "$work")
    [ -z "$tls" ] || options+=(--tls-port "$tls_port" --tls-cert-file "$cert" --tls-key-file "$key"
      --tls-ca-cert-file "$cert" --tls-auth-clients no)
    log=$work/$2.$i.log
    : >"$log"
    tools/foreign --run "$1" "$2" "${options[@]}" >"$log" 2>&1 &
    server=$!
    servers+=("$server")
    ready() { grep -q 'Ready to accept connections' "$log" || ! kill -0 "$server" 2>/dev/null; }
    soon ready
    kill -0 "$server" 2>/dev/null && return
    grep -q 'Address already in use' "$log" || break
  done
  fail "$2 starts" "$(tail -n 5 "$log")"
  return 1
}
for release in 'trixie redis-server redis-tools' 'sid valkey-server valkey-tools'; do
  read -r -a packages <<<"$release"
  if ! folder=$(tools/foreign "${packages[@]}" 2>"$work/why"); then
    echo "SKIPPED: ${packages[1]}: $(tail -n 1 "$work/why")"
    continue
  fi
  real "$folder" "${packages[1]}" || continue
  both "${packages[1]}, tcp" "tcp://127.0.0.1:$port" "$server"
  both "${packages[1]}, unix" "unix://$work/${packages[1]}.sock" "$server"
  [ -z "$tls" ] || both "${packages[1]}, tls" "tls://127.0.0.1:$tls_port?ca=$cert" "$server"
  stop "$server"
done
total
