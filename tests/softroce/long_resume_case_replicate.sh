#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Replication over rdma whose link is down for five seconds: redis-server 8 and valkey-server 9, each
# with the module at both ends, while a client writes. With resume=yes the replication link goes on,
# and there is no resynchronisation, be it that the stream of commands or a full synchronisation was
# under way. With resume=no the link ends, and what is written until the replica is back is more than
# the backlog holds, so that all data is sent again; with a larger backlog, only that. So it is with
# a repl-timeout that is shorter than the flap. AECONN_SERVERS selects servers, as for
# tests/drop_ins/redis.sh.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/../clients/kit"
# shellcheck source=tests/drop_ins/kit
. tests/drop_ins/kit
# shellcheck source=tests/drop_ins/tell
. tests/drop_ins/tell
[ -e /sys/class/infiniband/rxa ] || { echo 'skipped: this is for rxa and rxb in the microVM'; total; exit; }
here=$(dirname "$0")
# shellcheck source=tests/softroce/link
. "$here/link"
trap '"$here/veth" >/dev/null; finish' EXIT
patience=60  # the processors are emulated
one=${AECONN_RDMA_ADDRESS:?} two=${AECONN_RDMA_ADDRESS2:?} at=7001 to=7002
flap=5
resume='resume=yes&resume-time=30s'

keys() {  # PORT: their number; -1 while the server loads
  local number
  number=$(tell "$1" DBSIZE)
  [[ $number =~ ^[0-9]+$ ]] || number=-1
  echo "$number"
}
# Of the replica, as the master counts them: full and partial synchronisations.
synchronised() { echo "$(field "$at" sync_full) full, $(field "$at" sync_partial_ok) partial"; }
resumes() { echo $(($(field "$at" aeconn_rdma_resumes) + $(field "$to" aeconn_rdma_resumes))); }
in_step() { [ "$(field "$to" master_link_status)" = up ]; }
same_data() {
  in_step && [ "$(keys "$at")" = "$(keys "$to")" ] &&
    [ "$(tell "$at" DEBUG DIGEST)" = "$(tell "$to" DEBUG DIGEST)" ]
}
# One key of 1000 bytes after the other, until $work/enough exists; prints their number.
write_keys() {
  local number=0 i reply connection value
  printf -v value '%01000d' 0
  exec {connection}<>"/dev/tcp/127.0.0.1/$at"
  until [ -e "$work/enough" ]; do
    for ((i = 0; i < 10; i++)); do echo "SET key:$((number + i)) $value$number"; done >&"$connection"
    for ((i = 0; i < 10; i++)); do
      IFS= read -r -t "$patience" reply <&"$connection"
      [ "$reply" = $'+OK\r' ] || { echo "key:$number: '$reply'"; return; }
    done
    number=$((number + 10))
  done
  echo $number
}
since() { tail -n "+$(($2 + 1))" "$1" | grep -v 'user request'; }  # LOG LINES: after so many lines
show() {  # NAME LOG LINES
  local text
  text=$(since "$2" "$3")
  echo "$(t "$1"):"
  echo "    ${text:-(nothing)}"
}
# Without data, with a replica to be, whose replication takes OPTIONS.
prepare() {  # OPTIONS REPL-TIMEOUT
  tell "$to" REPLICAOF NO ONE
  tell "$at" FLUSHALL
  tell "$to" CONFIG SET aeconn.replicate "rdma?source=$two&$1"
  tell "$at" CONFIG SET repl-timeout "$2"
  tell "$to" CONFIG SET repl-timeout "$2"
}

stream() {  # NAME OPTIONS REPL-TIMEOUT "none"|"full"|"partial": the flap is in the stream of commands
  local name=$1 full partial before counted written had writer lines resumed on
  prepare "$2" "$3" >/dev/null
  tell "$to" REPLICAOF "$one" 6379 >/dev/null
  soon in_step
  rm -f "$work/enough"
  write_keys >"$work/writer" 2>&1 &
  writer=$!
  flows() { [ "$(keys "$to")" -ge 100 ]; }
  soon flows
  full=$(field "$at" sync_full) partial=$(field "$at" sync_partial_ok) before=$(synchronised) resumed=$(resumes) had=$(keys "$at")
  lines=("$(wc -l <"$primary_log")" "$(wc -l <"$replica_log")")
  link_down $flap
  written=$(keys "$at")
  goes_on() { [ "$(keys "$to")" -gt "$written" ]; }
  soon goes_on
  on=$?
  : >"$work/enough"
  wait $writer
  show "$name: the replica's log" "$replica_log" "${lines[1]}"
  show "$name: the master's log" "$primary_log" "${lines[0]}"
  [ $on = 0 ] || return 9
  soon same_data
  counted=$(synchronised)
  echo "$(t "$name"): before the flap $before; afterwards $counted; $((written - had)) keys written meanwhile"
  is "$(t "$name: the replica has every key")" "$(cat "$work/writer") up 0" \
    "$(keys "$to") $(field "$to" master_link_status) $(same_data; echo $?)"
  is "$(t "$name: more was written meanwhile than 16 KB")" 1 $((written - had > 100))
  if [ "$4" = none ]; then
    is "$(t "$name: no synchronisation, full or partial")" "$before" "$counted"
    is "$(t "$name: both ends have a new path")" $((resumed + 2)) "$(resumes)"
    is "$(t "$name: the replica noticed nothing")" '' \
      "$(since "$replica_log" "${lines[1]}" | grep -iE 'lost|sync|timeout')"
  else
    if [ "$4" = full ]; then
      is "$(t "$name: all data was sent again")" 1 $(($(field "$at" sync_full) > full))
    else
      is "$(t "$name: a partial synchronisation")" "$full full, $((partial + 1)) partial" "$counted"
    fi
    has "$(t "$name: the replica's link had ended")" 'Connection with (master|primary) lost' \
      "$(since "$replica_log" "${lines[1]}")"
  fi
}

synchronisation() {  # DISKLESS-LOAD: the flap is in a full synchronisation
  local name="a full synchronisation, repl-diskless-load $1" before resumed lines during in_step
  prepare "$resume" 60 >/dev/null
  tell "$to" CONFIG SET repl-diskless-load "$1" >/dev/null
  tell "$at" CONFIG SET rdb-key-save-delay 100 >/dev/null
  tell "$at" DEBUG POPULATE 20000 key 1000 >/dev/null
  before=$(field "$at" sync_full) resumed=$(resumes) lines=$(wc -l <"$replica_log")
  tell "$to" REPLICAOF "$one" 6379 >/dev/null
  transfers() { [ "$(field "$at" current_save_keys_processed)" -gt 0 ]; }
  soon transfers
  # The replica itself might not answer now.
  note_transfer() { during=$(field "$at" rdb_bgsave_in_progress); }
  link_down $flap note_transfer
  soon in_step
  in_step=$?
  show "$name: the replica's log" "$replica_log" "$lines"
  [ $in_step = 0 ] || return 9
  soon same_data
  is "$(t "$name: the link went down while it was under way")" 1 "$during"
  is "$(t "$name: the replica has every key")" '20000 0' "$(keys "$to") $(same_data; echo $?)"
  is "$(t "$name: there was one")" $((before + 1)) "$(field "$at" sync_full)"
  is "$(t "$name: both ends have a new path")" $((resumed + 2)) "$(resumes)"
}

case_of() {  # RELEASE:KIND
  choose "$1" || return
  run --port "$at" --enable-debug-command yes --protected-mode no --repl-backlog-size 16kb \
    --repl-ping-replica-period 1 --repl-diskless-sync-delay 0 --rdbcompression no \
    --loadmodule "$module" "rdma://$one:6379?$resume"
  local primary=$server primary_log=$log
  run --port "$to" --enable-debug-command yes --loadmodule "$module"
  local replica=$server replica_log=$log
  is "$(t 'both servers run')" 'PONG PONG' "$(tell "$at" PING) $(tell "$to" PING)"
  despite_deafness stream 'resume=yes' "$resume" 60 none
  despite_deafness stream 'resume=no' resume=no 60 full
  despite_deafness stream 'resume=yes, repl-timeout 3' "$resume" 3 full
  tell "$at" CONFIG SET repl-backlog-size 100mb >/dev/null
  despite_deafness stream 'resume=no, a large backlog' resume=no 60 partial
  despite_deafness synchronisation disabled
  despite_deafness synchronisation swapdb
  tell "$to" REPLICAOF NO ONE >/dev/null
  nothing_open() { [ "$(field "$at" aeconn_rdma_open) $(field "$to" aeconn_rdma_open)" = '0 0' ]; }
  soon nothing_open
  is "$(t 'no connection is left')" '0 0' "$(field "$at" aeconn_rdma_open) $(field "$to" aeconn_rdma_open)"
  stop "$replica"
  is "$(t 'SIGTERM ends the replica')" 0 "$status"
  stop "$primary"
  is "$(t 'SIGTERM ends the master')" 0 "$status"
}

for which in ${AECONN_SERVERS:-trixie:redis sid:valkey}; do case_of "$which"; done
total
