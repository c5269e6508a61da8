#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Two machines on a wire: how the loss, a stop or a restart of one machine affects the other.
#   tests/softroce/two_machines.sh [CASE...]   the cases are the functions case_*, without `case_`
# If the machines cannot be started, a line says why; with CI=true that is a failure.
set -u
# shellcheck source=tests/softroce/two
. "$(dirname "$0")/two"
# shellcheck source=tests/softroce/two_clients
. tests/softroce/two_clients

# ---- basic function ------------------------------------------------------------------------------
case_wire() {
  on B 'busybox ping -c 1 -W 20 10.8.0.1' >"$work/ping"
  is 'B reaches A' 0 $?
  begin_on A rping 'rping -s -a 10.8.0.1 -C 5'
  rping_listens() { on A "rdma resource show cm_id | grep -q 'LISTEN.*comm rping'" >"$work/listens"; }
  within 20 rping_listens
  said=$(on B 'rping -c -a 10.8.0.1 -C 5 -v' 2>&1)
  is 'rping from B to A' 5 "$(grep -c '^ping data' <<<"$said")"
}
# Killing the script must leave no machine running.
case_interrupted() {
  local name script seen
  # The pattern is read from a file, so that grep does not match its own command line.
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

# ---- A's power is cut, and comes back -----------------------------------------------------------
case_power_off() {
  local cut scheme
  clients || return
  # Connections without keepalive, to be closed when their peer is lost.
  local over_rdma=("${schemes[@]#tcp}")
  for scheme in ${over_rdma[*]}; do
    begin_on B "closing.$scheme" \
      "until [ -e /tmp/close ]; do sleep 0.1; done | $(words "$kv_cli" -u "$(asks "$scheme" keepalive=0)")"
  done
  all_there() { [ "$(clients_of_kv)" = $((2 * ${#schemes[@]})) ]; }
  within 30 all_there || fail 'connections to be closed' "$(tell)"
  cut=${EPOCHREALTIME/./}
  power_off A
  hear_of_it 'a machine that lost its power' "$cut"
  on B 'touch /tmp/close'
  for scheme in ${over_rdma[*]}; do
    if within 8 over "closing.$scheme"; then ok "a close towards it is over: $scheme"
    else fail "a close towards it is over: $scheme" "$(cat "$work/closing.$scheme.out")"; fi
  done
  for scheme in "${schemes[@]}"; do
    begin_on B "connecting.$scheme" "$(words "$kv_cli" -u "$(asks "$scheme")" PING)"
  done
  for scheme in "${schemes[@]}"; do
    within 10 over "connecting.$scheme"
    has "a connect to it fails, and says why: $scheme" \
      'Could not connect.*(in time|[Nn]o route|unreachable|timed out)' "$(cat "$work/connecting.$scheme.out")"
  done
  boot A || { fail 'A boots again' "$why_not_up"; return; }
  serve
  go_on 'when it is back its clients go on'
  no_clients
  a_has_nothing 'nothing is left on A'
  b_has_nothing 'nor on B'
}

# ---- a machine stands still ---------------------------------------------------------------------
# Longer than any peer waits for it.
case_freeze() {
  local stopped
  clients || return
  stopped=${EPOCHREALTIME/./}
  monitor A stop
  hear_of_it 'a machine that stands still' "$stopped"
  monitor A cont
  go_on 'when it goes on so do its clients'
  no_clients
  a_has_nothing 'nothing is left on A'
  b_has_nothing 'nor on B'
}
# Shorter, with queue pairs that retry long enough.
case_pause() {
  local machine
  patient
  serve_anew
  clients || return
  for machine in A B; do
    monitor $machine stop
    sleep 3
    monitor $machine cont
    go_on "$machine stood still for 3 s: all have answers"
    nobody_lost "and nobody lost a connection"
  done
  no_clients
  a_has_nothing 'nothing is left on A'
  impatient
  serve_anew
}

# ---- the wire is cut ----------------------------------------------------------------------------
# After its link was down, soft-RoCE's queue pair for connection management may no longer send or
# receive (seen on Linux 6.1, see long_veth_case_flaps.sh): rping verifies that.
can_connect() {
  begin_on A witness 'rping -s -a 10.8.0.1 -p 7999 -C 1'
  witness_listens() { on A 'rdma resource show cm_id' | grep -q 'LISTEN.*comm rping'; }
  within 10 witness_listens
  on B 'timeout 15 rping -c -a 10.8.0.1 -p 7999 -C 1' >/dev/null
  local status=$?
  end_on A witness
  return $status
}
case_link() {
  local down scheme machine
  clients || return
  down=${EPOCHREALTIME/./}
  monitor A set_link '{"name": "nic", "up": false}'
  hear_of_it 'a link that is down' "$down"
  monitor A set_link '{"name": "nic", "up": true}'
  # Connections that use only TCP show whether the wire works.
  on B 'until busybox ping -c 1 -W 1 10.8.0.1; do :; done' >/dev/null
  for scheme in "${schemes[@]}"; do had[$scheme]=$(($(size_of "$scheme") + 10)); done
  if ! within 20 answers && ! can_connect; then
    echo "soft-RoCE itself took no connection after its link was down (nor rping's): made anew"
    for machine in A B; do on $machine 'rdma link delete rxe0; rdma link add rxe0 type rxe netdev eth0'; done
  fi
  go_on 'when it is up again its clients go on'
  no_clients
  a_has_nothing 'nothing is left on A'
  b_has_nothing 'nor on B'
}

# ---- the wire loses packets ---------------------------------------------------------------------
# conn-perf verifies checksums and the order of the bytes.
case_loss() {
  local loss scheme machine at lost
  persistent
  serve_anew
  for loss in 1 10; do
    for machine in A B; do on $machine "tc qdisc replace dev eth0 root netem loss $loss%"; done
    for scheme in "${schemes[@]}"; do
      at=$(asks "$scheme")
      said=$(on B "$(words "$build/conn-perf" client "${at/:700/:701}" --mode stream --both-ways \
        --sizes 16k --requests 20 --warmup 0 --patience 120s)" 120)
      status=$?
      is "every byte arrives, in order, though $loss % of the packets are lost: $scheme" 0 $status
      [ $status = 0 ] || echo "$said"
    done
    for machine in A B; do
      lost=$(on $machine 'tc -s qdisc show dev eth0' | sed -n 's/.*dropped \([0-9]*\).*/\1/p')
      if [ "${lost:-0}" -gt 0 ]; then ok "packets of $machine were lost: $lost"
      else fail "packets of $machine were lost" 'netem dropped none'; fi
      on $machine 'tc qdisc del dev eth0 root'
    done
  done
  # The kernel sends a disconnect once when a process ends, and it may be lost: then A's keepalives
  # detect it.
  a_has_nothing 'nothing is left on A' 50
  impatient
  serve_anew
}

# ---- B is lost, and comes back with its address -------------------------------------------------
case_client_lost() {
  clients || return
  power_off B
  a_has_nothing 'A forgets the clients of a machine that lost its power'
  boot B || { fail 'B boots again' "$why_not_up"; return; }
  is 'a client of the new machine is served' PONG "$(on B "$kv_cli -u rdma://10.8.0.1:7000 PING")"
}
# The restarted machine reuses the same queue pair numbers, and A still has connections with these:
# the kernel refuses them as stale, and the library tries the next number.
rejects() { on A 'cat /sys/class/infiniband/rxe0/ports/1/cm_tx_msgs/rej'; }
number_on_b() { on B 'rdma resource show qp' | sed -n 's/.*lqpn \([0-9]*\) .*type RC.*/\1/p' | head -n 1; }
stay() { begin_on B stays "sleep 1d | exec $kv_cli -u 'rdma://10.8.0.1:7005?keepalive=0'"; }
case_same_address() {
  local before number
  two_clients() { [ "$(clients_of_kv)" = 2 ]; }
  power_off B
  boot B || { fail 'B boots' "$why_not_up"; return; }
  stay
  within 20 two_clients || fail 'a connection that is not given up' "$(tell)"
  number=$(number_on_b)
  power_off B
  boot B || { fail 'B boots again' "$why_not_up"; return; }
  is 'A still has the connection' 2 "$(clients_of_kv)"
  before=$(rejects)
  is 'a client of the new machine is served all the same' PONG \
    "$(on B "$kv_cli -u rdma://10.8.0.1:7000 PING")"
  if [ "$(rejects)" -gt "$before" ]; then ok "after its number, $number, was refused as stale"
  else fail 'its number was refused as stale' "it was $number; $(tell)"; fi
  a_has_nothing 'and A has let go of the old connection'
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
alone=$(connected B)
serve
listening=$(connected A)
[ $# -gt 0 ] || set -- wire interrupted power_off freeze pause link loss client_lost same_address
for name; do
  declare -F "case_$name" >/dev/null || { fail "$name" 'there is no such case'; continue; }
  echo "-- $name"
  begun=$SECONDS
  "case_$name"
  echo "$name: $((SECONDS - begun)) s"
done
total
