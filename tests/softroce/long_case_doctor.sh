#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# aeconn-doctor on a machine with RDMA: each row that can fail is made to fail and repaired again.
# Then limits, as reported before they are reached and when they are. Tests that need two ends are
# in long_veth_case_doctor.sh.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/../clients/kit"
url=rdma://$AECONN_RDMA_ADDRESS
doctor() { timeout 60 "$build/aeconn-doctor" "$@" 2>&1; }
low() { grep '^LOW ' | sed 's/^LOW  //'; }

before=$(cat /proc/sys/vm/max_map_count)
loader=$(cat /proc/sys/kernel/modprobe)
group=/sys/fs/cgroup/aeconn
mend() {
  echo "$before" >/proc/sys/vm/max_map_count
  if [ "${AECONN_SOFTROCE-}" = 1 ]; then
    ip netns del other 2>/dev/null
    echo "$loader" >/proc/sys/kernel/modprobe
    chmod 666 /dev/infiniband/* 2>/dev/null
  fi
  finish
}
trap mend EXIT

# NAME ROW REMEDY COMMAND...: checks that the row is printed, and that the last line gives the
# remedy for the first failure.
first_failure() {
  local out status
  out=$("${@:4}" 2>&1); status=$?
  is "$1: status" 1 $status
  has "$1: the row" "$2" "$(grep -E '^(FAIL|note)' <<<"$out")"
  has "$1: what to do" "$3" "$(tail -n 1 <<<"$out")"
}

out=$(doctor); status=$?
is 'nothing is wrong: status' 0 $status
has 'nothing is wrong: rows' 'ok    modules: .*
ok    device files: /dev/infiniband/rdma_cm, /dev/infiniband/uverbs
ok    ports: .*/1 ACTIVE
ok    addresses: .*'"$AECONN_RDMA_ADDRESS"' is [a-z0-9_]+/1
ok    limit: queue pairs of
ok    loopback [a-z0-9_]+/1: [0-9.]+ us there and back; .*rdma .*'"$AECONN_RDMA_ADDRESS" "$out"

if [ "${AECONN_SOFTROCE-}" = 1 ]; then
  has 'a device named' 'ok    devices: rxe0 rdma_rxe' "$out"
  # ---- a dial of each kind, and the other end --------------------------------------------------
  if begin "$build/aeconn-doctor" --serve "$url:7000"; then
    soon grep -q 'listening on tcp' "$log"
    out=$(doctor "$url:7000"); status=$?
    is 'a dial: status' 0 $status
    steps=$(sed -nE 's/^[a-zA-Z-]+ +(rdma|tcp): ([a-zA-Z0-9 ]+): .*/\1 \2;/p' <<<"$out" | paste -sd' ')
    is 'a dial: the steps' 'rdma route; rdma resolve name; rdma resolve address; rdma resolve route; rdma queue pair; rdma connect; rdma first window; rdma first round trip; rdma round trips; rdma 64 KiB there and back; rdma path; tcp resolve name; tcp connect; tcp first round trip; tcp round trips; tcp 64 KiB there and back; tcp path;' "$steps"
    has 'a dial: both in one line' 'beside tcp: rdma takes [0-9.]+ [mu]s there and back, tcp [0-9.]+ [mu]s' "$out"
    stop "$server"
  fi
  if openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$work/key.pem" \
      -out "$work/cert.pem" -subj /CN=x -addext "subjectAltName=IP:$AECONN_RDMA_ADDRESS" -days 9 2>/dev/null &&
      begin "$build/aeconn-doctor" --serve "tls+$url:7000?cert=$work/cert.pem&key=$work/key.pem"; then
    out=$(doctor "tls+$url:7000?ca=$work/cert.pem")
    has 'tls+rdma: the steps' 'ok    tls\+rdma: queue pair: .*
ok    tls\+rdma: TLS handshake: [0-9.]+ [mu]s
ok    tls: TLS handshake: [0-9.]+ [mu]s' "$out"
    stop "$server"
  fi
  start --listen tcp://"$AECONN_RDMA_ADDRESS":7003 &&
    first_failure 'a server without rdma' 'FAIL  rdma: connect: .*' 'no server listens over RDMA on this port' \
      doctor "$url:7003"

  # ---- what stops it, one after the other ------------------------------------------------------
  as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$build/aeconn-doctor"; }
  chmod 600 /dev/infiniband/uverbs0
  first_failure 'no right to a device' 'FAIL  device files: /dev/infiniband/uverbs0: Permission denied' \
    'usermod -aG GROUP USER' as_nobody
  chmod 600 /dev/infiniband/rdma_cm; chmod 666 /dev/infiniband/uverbs0
  first_failure 'no right to rdma_cm' 'FAIL  device files: /dev/infiniband/rdma_cm: Permission denied' \
    'usermod -aG GROUP USER' as_nobody
  chmod 666 /dev/infiniband/*

  ip netns add other
  first_failure 'another network namespace' 'FAIL  gids: rxe0/1: .*of another network namespace' \
    'run this where the interface is' ip netns exec other "$build/aeconn-doctor"
  ip netns del other

  table() { grep -qsi "$1" /sys/class/infiniband/rxe0/ports/1/gids/*; }
  gone_from_table() { ! table "$1"; }
  ip addr del "$AECONN_RDMA_ADDRESS/24" dev dummy0
  ip addr del "$AECONN_RDMA_ADDRESS6/64" dev dummy0
  soon gone_from_table ffff:0a4d && soon gone_from_table fd77
  first_failure 'no address' 'FAIL  gids: rxe0/1(: all GIDs are zero|.*link-local only)' \
    'ip addr add ADDRESS/24 dev dummy0' doctor
  ip link set dummy0 down
  down() { ! grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state; }
  soon down
  first_failure 'link down' 'FAIL  ports: rxe0/1 DOWN' 'ip link set dummy0 up' doctor
  mtu=$(cat /sys/class/net/dummy0/mtu)
  ip link set dummy0 mtu 1500 up
  ip addr add "$AECONN_RDMA_ADDRESS/24" dev dummy0
  ip addr add "$AECONN_RDMA_ADDRESS6/64" dev dummy0 nodad
  soon table ffff:0a4d && soon table fd77
  if mount -t configfs none /sys/kernel/config 2>/dev/null && mkdir /sys/kernel/config/rdma_cm/rxe0 2>/dev/null; then
    echo 104 >/sys/kernel/config/rdma_cm/rxe0/ports/1/default_roce_tos
  else
    echo 'skipped what rdma_cm takes: this kernel has no configfs for it'
  fi
  out=$(doctor); status=$?
  is 'a short MTU: status' 0 $status
  has 'a short MTU: the row' 'note  mtu: rxe0/1 1024, as dummy0 has 1500' "$out"
  has 'a short MTU: it is so' 'ok    loopback .* mtu 1024 ' "$out"
  ip link set dummy0 mtu "$mtu"
  if [ -d /sys/kernel/config/rdma_cm/rxe0 ]; then
    has 'what rdma_cm takes' 'marking: rdma_cm: rxe0/1 .*RoCE v2, type of service 104' "$out"
    rmdir /sys/kernel/config/rdma_cm/rxe0
  fi
  mountpoint -q /sys/kernel/config && umount /sys/kernel/config

  rdma link delete rxe0
  first_failure 'no device' 'FAIL  devices: there is no RDMA device' 'rdma link add rxe0' doctor
  rdma link add rxe0 type rxe netdev dummy0
  soon test -e /dev/infiniband/uverbs0
  soon table ffff:0a4d
  # Opening the device file would make the kernel load the module again.
  echo /bin/false >/proc/sys/kernel/modprobe
  modprobe -r rdma_ucm 2>/dev/null || rmmod rdma_ucm
  if [ -e /dev/infiniband/rdma_cm ]; then
    echo 'SKIPPED no module: rdma_ucm cannot be unloaded here'
  else
    first_failure 'no module' 'FAIL  modules: not in the kernel: rdma_ucm' 'modprobe -a rdma_ucm' doctor
    echo "$loader" >/proc/sys/kernel/modprobe
    modprobe rdma_ucm || insmod "$(find "/lib/modules/$(uname -r)" -name 'rdma_ucm.ko*')"
    soon test -e /dev/infiniband/rdma_cm
    doctor >/dev/null
    is 'all is mended' 0 $?
  fi
  echo "$loader" >/proc/sys/kernel/modprobe
fi

# ---- limits -------------------------------------------------------------------------------------
out=$(doctor --connections 20 --limits "$url:1"); status=$?
is 'enough for a few: status' 0 $status
has 'enough for a few: the device' '^ok   .*queue pairs of [a-z0-9_]+ \(max_qp\): [0-9]+, 0 used; 20 connections of these options need 20' \
  "$(grep max_qp <<<"$out")"

echo 3000 >/proc/sys/vm/max_map_count
has 'memory mappings' 'vm.max_map_count\): 3000, [0-9]+ used; 20000 connections .*room for 1[0-9]+: raise it with sysctl vm.max_map_count=4[0-9]+' \
  "$(doctor --connections 20000 --limits "$url:1" | low | grep max_map)"
echo "$before" >/proc/sys/vm/max_map_count

# Without CAP_IPC_LOCK, as servers usually run. Only in subshells: exec replaces the shell, so that
# a signal reaches the program itself.
limited() { exec setpriv --bounding-set -ipc_lock -- sh -c "ulimit -l $1; shift; exec \"\$@\"" sh "$@"; }
has 'locked memory' 'locked memory \(memlock\): 8192 KiB, 0 KiB used; 1000 connections of these options need [0-9]+ KiB, so there is room for [0-9]+: raise it with ulimit -l [0-9]+ \(KiB\), LimitMEMLOCK=[0-9]+K' \
  "$(limited 8192 "$build/aeconn-doctor" --limits "$url:1" 2>&1 | low)"
out=$(limited 8192 "$build/aeconn-doctor" 2>&1); status=$?
is 'locked memory for a few: status' 0 $status
has 'locked memory for a few: a note' 'note  limit: locked memory \(memlock\): 8192 KiB, .* room for [1-9]' "$out"
out=$(limited 64 "$build/aeconn-doctor" 2>&1); status=$?
is 'locked memory for nobody: status' 1 $status
has 'locked memory for nobody: what to do' 'The first failure is limit. What to do: raise it with ulimit -l ' "$out"
limited 512 "$kv_server" --listen "$url:7001" >"$work/locked.log" 2>&1 &
servers+=($!)
up() { grep -q '^listening on' "$work/locked.log"; }
if soon up; then
  has 'locked memory is met: the error' '(locked-memory limit is 512 KiB|memlock)' \
    "$(limited 64 timeout 30 "$kv_cli" -u "$url:7001" PING 2>&1)"
else
  fail 'a server with little locked memory starts' "$(cat "$work/locked.log")"
fi

mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup 2>/dev/null
if echo +rdma >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null && mkdir "$group" 2>/dev/null; then
  device=$(find /sys/class/infiniband -mindepth 1 -printf '%f\n' | head -n 1)
  echo "$device hca_object=40" >"$group/rdma.max"
  inside() { sh -c "echo \$\$ >$group/cgroup.procs; exec \"\$@\"" sh "$@"; }
  has 'the rdma cgroup' "rdma cgroup of $device \\(hca_object\\): 40, [0-9]+ used; 1000 connections .* room for [0-9]+: raise it with echo '$device hca_object=[0-9]+' >$group/rdma.max" \
    "$(inside "$build/aeconn-doctor" --limits "$url:1" 2>&1 | low)"
  echo "$device hca_object=3" >"$group/rdma.max"
  out=$(inside "$build/aeconn-doctor" 2>&1); status=$?
  is 'the rdma cgroup has room for nobody: status' 1 $status
  has 'the rdma cgroup has room for nobody: what to do' \
    "The first failure is limit\. What to do: raise it with echo '$device hca_object=[0-9]+' >$group/rdma.max" "$out"
  "$kv_server" --listen "$url:7002" >"$work/group.log" 2>&1 &
  servers+=($!)
  up() { grep -q '^listening on' "$work/group.log"; }
  soon up
  out=$(inside timeout 30 "$kv_cli" -u "$url:7002" PING 2>&1)
  has 'the rdma cgroup is met: the error' "; rdma cgroup of $device \\(hca_object\\): 3, [0-9]+ used; 16 connections .* room for 0: raise it" "$out"
  # Linux 6.1 frees a group that still has limits, and uses it after that when the device is removed
  # (kernel/cgroup/rdma.c, rdmacg_css_offline()).
  echo "$device hca_handle=max hca_object=max" >"$group/rdma.max"
  rmdir "$group"
else
  echo 'skipped the rdma cgroup: this kernel or this guest has none'
fi
total
