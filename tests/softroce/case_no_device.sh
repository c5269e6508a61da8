#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Programs on a machine without an RDMA device, or whose device was removed: each prints one clear
# error, TCP still works, and a device that appears is used.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/../clients/kit"
[ -e /sys/class/infiniband/rxe0 ] || { echo 'skipped: this is for rxe0 in the microVM'; total; exit; }
back() { [ -e /sys/class/infiniband/rxe0 ] || rdma link add rxe0 type rxe netdev dummy0; }
trap 'back; finish' EXIT
rdma_url=rdma://$AECONN_RDMA_ADDRESS:7000
warnings=$(dmesg --level=emerg,alert,crit,err | wc -l)

rdma link delete rxe0
refuses 'no device: a listener' 'no RDMA device' "$kv_server" --listen "$rdma_url"
has 'no device: a client' 'no RDMA device' "$(timeout 20 "$kv_cli" -u "$rdma_url" PING 2>&1)"
if start --listen "tcp://127.0.0.1:0"; then
  is 'no device: TCP works' PONG "$("$kv_cli" -u "${urls[0]}" PING)"
  stop "$server"
fi
back
if start --listen "$rdma_url"; then
  is 'a device that came is used' PONG "$("$kv_cli" -u "$rdma_url" PING)"
  stop "$server"
  is 'SIGTERM' 0 "$status"
fi

# Opening the device file would make the kernel load the module again.
loader=$(cat /proc/sys/kernel/modprobe)
echo /bin/false >/proc/sys/kernel/modprobe
modprobe -r rdma_ucm 2>/dev/null || rmmod rdma_ucm
if [ -e /dev/infiniband/rdma_cm ]; then
  echo 'SKIPPED: rdma_ucm cannot be unloaded here'
else
  refuses 'no rdma_ucm: a listener' 'no RDMA device.*modprobe rdma_ucm' "$kv_server" --listen "$rdma_url"
  has 'no rdma_ucm: a client' 'no RDMA device' "$(timeout 20 "$kv_cli" -u "$rdma_url" PING 2>&1)"
  if start --listen 'tcp://127.0.0.1:0'; then
    is 'no rdma_ucm: TCP works' PONG "$("$kv_cli" -u "${urls[0]}" PING)"
    stop "$server"
  fi
  echo "$loader" >/proc/sys/kernel/modprobe
  modprobe rdma_ucm || insmod "$(find "/lib/modules/$(uname -r)" -name 'rdma_ucm.ko*')"
  soon test -e /dev/infiniband/rdma_cm
  if start --listen "$rdma_url"; then
    is 'with rdma_ucm again it works' PONG "$("$kv_cli" -u "$rdma_url" PING)"
    stop "$server"
  fi
fi
is 'the kernel has no complaint' "$warnings" "$(dmesg --level=emerg,alert,crit,err | wc -l)"
echo '3 faults injected'
total
