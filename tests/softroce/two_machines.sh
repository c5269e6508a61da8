#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Two machines on a wire: what a machine that is lost, stopped or started again does to the other.
#   tests/softroce/two_machines.sh [CASE...]      the cases are the functions case_*, without `case_`
# Where the machines cannot be had a line says why; with CI=true that is a failure.
set -u
# shellcheck source=tests/softroce/two
. "$(dirname "$0")/two"

# ---- it works at all ----------------------------------------------------------------------------
case_wire() {
  on B 'busybox ping -c 1 -W 20 10.8.0.1' >"$work/ping"
  is 'B reaches A' 0 $?
  begin_on A rping 'rping -s -a 10.8.0.1 -C 5'
  rping_listens() { on A "rdma resource show cm_id | grep -q 'LISTEN.*comm rping'" >"$work/listens"; }
  within 20 rping_listens
  said=$(on B 'rping -c -a 10.8.0.1 -C 5 -v' 2>&1)
  is 'rping from B to A' 5 "$(grep -c '^ping data' <<<"$said")"
}
# Whoever kills the script leaves no machine running.
case_interrupted() {
  local name script seen
  # The pattern comes from a file, so that grep does not find itself.
  ours() { grep -lszf "$work/pattern" /proc/[0-9]*/cmdline | xargs -r -n 1 cat 2>/dev/null | grep -qza '^qemu-system'; }
  none_of_ours() { ! ours; }
  for name in TERM KILL; do
    mkdir "$work/$name"
    echo "$work/$name" >"$work/pattern"
    TMPDIR=$work/$name bash -c '. tests/softroce/two; boot A B; within 600 false' >"$work/$name.said" 2>&1 &
    script=$!
    within 60 ours && seen=yes || seen=no
    { kill -$name $script && wait $script; } 2>/dev/null
    is "a script that SIG$name ends had machines" yes $seen
    if within 20 none_of_ours; then ok "and leaves none"; else fail "SIG$name leaves machines" "$(cat "$work/$name.said")"; fi
  done
}

skipped() {  # WHY
  echo "SKIPPED: two machines: $1"
  [ "${CI-}" = true ] && [ "${RDMA-}" != no ] && fail 'two machines' "they did not run: $1"
  total
  exit
}
[ "${RDMA-}" = no ] && skipped 'RDMA=no'
[ "${RDMA-}" = host ] && { echo 'SKIPPED: two machines: RDMA=host, and they are microVMs'; total; exit; }
boot A B || skipped "$why_not_up"
[ $# -gt 0 ] || set -- wire interrupted
for name; do
  declare -F "case_$name" >/dev/null || { fail "$name" 'there is no such case'; continue; }
  echo "-- $name"
  begun=$SECONDS
  "case_$name"
  echo "$name: $((SECONDS - begun)) s"
done
total
