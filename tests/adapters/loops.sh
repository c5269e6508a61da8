#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# ae::EpollLoop within host loops, and connections as asio streams, with Beast and asio::ssl on top:
# over tcp, unix and tls. Over rdma: tests/softroce/case_loops_of_hosts.sh. `make adapter-programs`
# builds the programs.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/../clients/kit"
at=$build/tests/adapters
[ -e "$at/missing" ] || { fail 'the programs are there' 'make adapter-programs makes them'; total; exit; }
# In CI all packages are installed, so a missing one is an error.
while read -r line; do
  if [ "${CI-}" = true ]; then fail "${line#SKIPPED: }" 'CI has all packages'; else echo "$line"; fi
done <"$at/missing"

tls=''
! grep -q 'AECONN_TLS=1' "$build/flags" || tls=yes
cert=$work/cert.pem key=$work/key.pem
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
  -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout "$key" -out "$cert" 2>"$work/openssl.log" || tls=''

run() {  # NAME PROGRAM ARGUMENTS...: one case
  local wrong status
  { timeout 120 "${@:2}"; } >"$work/out" 2>&1
  status=$?
  wrong=$(grep '^FAIL ' "$work/out")
  if [ $status = 0 ]; then ok "$1: $(tail -n 1 "$work/out" | sed 's/ passed.*/ checks/')"
  else fail "$1" "${wrong:-status $status: $(tail -c 1500 "$work/out")}"
  fi
}
for program in "$at"/{loops,streams}-* "$at/beast"; do
  [ -x "$program" ] || continue
  name=${program##*/}
  run "$name, tcp" "$program" tcp://127.0.0.1:0 '' "$cert" "$key"
  run "$name, unix" "$program" "unix://$work/$name.sock" '' "$cert" "$key"
  [ -z "$tls" ] || run "$name, tls" "$program" "tls://127.0.0.1:0?cert=$cert&key=$key" "ca=$cert" "$cert" "$key"
  [[ $name = loops-* ]] || continue
  { timeout 20 "$program" terminate; } >"$work/out" 2>&1
  status=$?
  is "$name: an exception that nobody was to be told of ends the process" 134 $status
  run "$name, its recipe" "$program" recipe
done
if [ -x "$at/libevent-behind-libev" ]; then
  has 'libevent behind libev is noticed' 'link libevent before libev' "$(timeout 20 "$at/libevent-behind-libev" terminate 2>&1)"
fi
total
