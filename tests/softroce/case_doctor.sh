#!/usr/bin/env bash
# Limits in words: aeconn-doctor says which is too low before it is met, and errors name it when it is:
# memory mappings, locked memory, the rdma cgroup.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/../clients/kit"
url=rdma://$AECONN_RDMA_ADDRESS
doctor() { "$build/aeconn-doctor" "$@" 2>&1; }
low() { grep '^LOW ' | sed 's/^LOW  //'; }

before=$(cat /proc/sys/vm/max_map_count)
mend() { echo "$before" >/proc/sys/vm/max_map_count; finish; }
trap mend EXIT

out=$(doctor --connections 20 "$url:1"); status=$?
is 'enough for a few: status' 0 $status
has 'enough for a few: the device' '^ok   .*queue pairs of [a-z0-9_]+ \(max_qp\): [0-9]+, 0 used; 20 connections of these options need 20' \
  "$(grep max_qp <<<"$out")"

echo 3000 >/proc/sys/vm/max_map_count
has 'memory mappings' 'vm.max_map_count\): 3000, [0-9]+ used; 20000 connections .*room for 1[0-9]+: raise it with sysctl vm.max_map_count=4[0-9]+' \
  "$(doctor --connections 20000 "$url:1" | low | grep max_map)"
echo "$before" >/proc/sys/vm/max_map_count

# Without CAP_IPC_LOCK, as people run servers.
# Only in subshells: exec, so that what is ended is the program itself.
limited() { exec setpriv --bounding-set -ipc_lock -- sh -c "ulimit -l $1; shift; exec \"\$@\"" sh "$@"; }
has 'locked memory' 'locked memory \(memlock\): 8192 KiB, 0 KiB used; 1000 connections of these options need [0-9]+ KiB, so there is room for [0-9]+: raise it with ulimit -l [0-9]+ \(KiB\), LimitMEMLOCK=[0-9]+K' \
  "$(limited 8192 "$build/aeconn-doctor" "$url:1" 2>&1 | low)"
limited 512 "$kv_server" --listen "$url:7001" >"$work/locked.log" 2>&1 &
servers+=($!)
up() { grep -q '^listening on' "$work/locked.log"; }
if soon up; then
  has 'locked memory is met: the error' '(locked-memory limit is 512 KiB|memlock)' \
    "$(limited 64 timeout 30 "$kv_cli" -u "$url:7001" PING 2>&1)"
else
  fail 'a server with little locked memory starts' "$(cat "$work/locked.log")"
fi

group=/sys/fs/cgroup/aeconn
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup 2>/dev/null
if echo +rdma >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null && mkdir "$group" 2>/dev/null; then
  device=$(find /sys/class/infiniband -mindepth 1 -printf '%f\n' | head -n 1)
  echo "$device hca_object=40" >"$group/rdma.max"
  inside() { sh -c "echo \$\$ >$group/cgroup.procs; exec \"\$@\"" sh "$@"; }
  has 'the rdma cgroup' "rdma cgroup of $device \\(hca_object\\): 40, [0-9]+ used; 1000 connections .* room for [0-9]+: raise it with echo '$device hca_object=[0-9]+' >$group/rdma.max" \
    "$(inside "$build/aeconn-doctor" "$url:1" 2>&1 | low)"
  echo "$device hca_object=3" >"$group/rdma.max"
  "$kv_server" --listen "$url:7002" >"$work/group.log" 2>&1 &
  servers+=($!)
  up() { grep -q '^listening on' "$work/group.log"; }
  soon up
  out=$(inside timeout 30 "$kv_cli" -u "$url:7002" PING 2>&1)
  has 'the rdma cgroup is met: the error' "; rdma cgroup of $device \\(hca_object\\): 3, [0-9]+ used; 16 connections .* room for 0: raise it" "$out"
  # Linux 6.1 frees a group that has limits yet, and goes on using it when the device is removed
  # (kernel/cgroup/rdma.c, rdmacg_css_offline()).
  echo "$device hca_handle=max hca_object=max" >"$group/rdma.max"
  rmdir "$group"
else
  echo 'skipped the rdma cgroup: this kernel or this guest has none'
fi
total
