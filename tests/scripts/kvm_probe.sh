#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# tests/softroce/run boots once to test whether KVM works. If QEMU is killed by a signal then, the
# answer must be no, without any message. QEMU is simulated by a script; the kernel and its modules
# are real.
set -u
# shellcheck source=tests/scripts/kit
. "$(dirname "$0")/kit"
[ "${RDMA-yes}" = yes ] && [ "$(uname -m)" = x86_64 ] || {
  echo "SKIPPED: the microVM is not used: RDMA=${RDMA-}, $(uname -m)"; total; exit; }

# The probe's result is kept below the tree, so the test uses a tree of its own.
mkdir -p "$work/tree/tests" "$work/bin" && cp -r tests/softroce "$work/tree/tests/" && : >"$work/kvm"
cat >"$work/bin/qemu-system-x86_64" <<'END'
#!/usr/bin/env bash
echo "$*" >>"$QEMU_CALLS"
case "$* " in
  *aeconn.probe*' kvm '*) [ "$QEMU_PROBE" = boots ] || kill -"$QEMU_PROBE" $$ ;;
esac
for argument; do
  case $argument in
    file,id=status,path=*)
      case $* in *aeconn.probe*) printf probe ;; *) printf 0 ;; esac >"${argument#*path=}" ;;
    file,id=output,path=*) echo 'the command ran' >"${argument#*path=}" ;;
  esac
done
END
chmod +x "$work/bin/qemu-system-x86_64"

try() {  # SIGNAL: of which QEMU dies in its probe, or `boots`
  rm -f "$work/tree/build/softroce/"kvm-* "$work/calls"
  PATH=$work/bin:$PATH QEMU_CALLS=$work/calls QEMU_PROBE=$1 SOFTROCE_KVM=$work/kvm \
    "$work/tree/tests/softroce/run" -- true >"$work/out" 2>"$work/err"
  status=$?
  accelerators=$(grep -o -e '-accel [a-z]*' "$work/calls" | tr '\n' ' ')
}
for signal in ABRT SEGV KILL; do
  try $signal
  [ $status = 126 ] && { echo "SKIPPED: $(cat "$work/err")"; total; exit; }
  is "SIG$signal in the probe: status" 0 $status
  is "SIG$signal in the probe: then it is emulated" '-accel kvm -accel tcg ' "$accelerators"
  is "SIG$signal in the probe: nothing but the command is heard" 'the command ran' \
    "$(cat "$work/out" "$work/err")"
done
try boots
is 'a probe that boots: KVM is used' '-accel kvm -accel kvm ' "$accelerators"
is 'a probe that boots: nothing but the command is heard' 'the command ran' "$(cat "$work/out" "$work/err")"
total
