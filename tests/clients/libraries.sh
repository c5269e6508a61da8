#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# libibverbs and librdmacm are loaded when rdma is first used: no program is linked with them, and
# without them everything else works, and rdma names the missing package. Needs root to hide their
# files from programs in a mount namespace.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/kit"
made_with=$(sed "s/^ccache //" "$build/flags" 2>/dev/null)
case $made_with in
  *-DAECONN_RDMA=0*)
    has 'a build without rdma says so' 'rdma: this build leaves it out \(make RDMA=yes\)' "$("$kv_server" --version)"
    total; exit ;;
  *-DAECONN_RDMA_LINK=1*)
    has 'a build that is linked says so' 'rdma: libibverbs and librdmacm are linked' "$("$kv_server" --version)"
    total; exit ;;
esac

# ---- the normal build ----------------------------------------------------------------------------
needed() { readelf -d "$1" | grep -oE 'lib(ibverbs|rdmacm)\.so\.1'; }
for each in kv-server kv-cli conn-perf aeconn-proxy aeconn-doctor; do
  has "$each: --version" "$each"$' [0-9.]+\ntransports: tcp unix .*rdma\nrdma: libibverbs and librdmacm are loaded when it is first used' \
    "$("$build/$each" --version)"
  is "$each: linked with neither" '' "$(needed "$build/$each")"
done
for each in "$build"/libaeconn.so "$build"/libaeconn-c.so "$build"/aeconn-*.so; do
  [ ! -e "$each" ] || is "${each##*/}: linked with neither" '' "$(needed "$each")"
done
# The forwarding functions are not exported, and cover all calls made in the library.
is 'libaeconn.so shows none of their functions' '' \
  "$(nm -D --defined-only "$build/libaeconn.so" | grep -E ' _?(ibv|rdma)_')"
is 'libaeconn.so asks for none of their functions' '' "$(nm -D --undefined-only "$build/libaeconn.so" | grep -E ' _?(ibv|rdma)_')"
out=$("$build/aeconn-doctor")
has 'the doctor names the files' 'ok    libraries: /.*/libibverbs\.so\.1[.0-9]*, /.*/librdmacm\.so\.1[.0-9]*' "$out"

# ---- linked, as RDMA=link does ------------------------------------------------------------------
cxx=${CXX:-${made_with%% *}} cxx=${cxx:-g++}
sanitize=$(grep -o -e '-fsanitize=[a-z,]*' <<<"$made_with" | sort -u | tr '\n' ' ')
tls=
case $made_with in *-DAECONN_TLS=1*) tls='-lssl -lcrypto' ;; esac
# shellcheck disable=SC2086
if $cxx -std=c++20 -O1 $sanitize -I. -DAECONN_RDMA=1 -DAECONN_RDMA_LINK=1 docs/echo_server.cc conn/rdma/device/libraries.cc \
    -Wl,--no-as-needed -lrdmacm -libverbs -Wl,--as-needed -o "$work/echo" "$build/libaeconn.a" $tls -lev -lfmt -pthread 2>"$work/log"; then
  is 'RDMA=link: a program is linked with both' $'libibverbs.so.1\nlibrdmacm.so.1' "$(needed "$work/echo" | sort)"
else
  fail 'RDMA=link: a program' "$(tail -n 3 "$work/log")"
fi

# ---- where they are missing ---------------------------------------------------------------------
if ! unshare --mount true 2>/dev/null; then
  echo 'SKIPPED: programs without the libraries: only root may hide files in a mount namespace'
  [ "${CI-}" != true ] || fail 'programs without the libraries' 'they were promised, and this is not root'
  total; exit
fi
files=$(ldconfig -p | awk '/lib(ibverbs|rdmacm)\.so\.1 / {print $NF}' | xargs realpath | sort -u)
is 'there are two files to hide' 2 "$(wc -l <<<"$files")"
without=$work/without
cat >"$without" <<END
#!/bin/sh
# COMMAND...
[ "\$APART" = yes ] || APART=yes exec unshare --mount "\$0" "\$@"
$(sed 's/.*/mount --bind \/dev\/null "&"/' <<<"$files")
exec "\$@"
END
chmod +x "$without"
sentence='rdma needs libibverbs\.so\.1, which this machine does not have: install libibverbs1, librdmacm1 and ibverbs-providers \(Debian, Ubuntu\) or rdma-core \(.*libibverbs\.so\.1.*\)'
refuses 'missing: kv-server' "$sentence" "$without" "$kv_server" --listen rdma://127.0.0.1:0
refuses 'missing: kv-cli' "$sentence" "$without" "$build/kv-cli" -u rdma://127.0.0.1:1 PING
refuses 'missing: conn-perf' "$sentence" "$without" "$build/conn-perf" client rdma://127.0.0.1:1
has 'missing: the doctor' 'FAIL  libraries: '"$sentence" "$("$without" "$build/aeconn-doctor")"
has 'missing: --version does not mind' 'rdma: libibverbs' "$("$without" "$kv_server" --version)"
if begin "$without" "$kv_server" --listen 'rdma|tcp://127.0.0.1:0'; then
  has 'missing: a list takes the next and says why' 'rdma needs libibverbs\.so\.1' "$(cat "$log")"
  is 'missing: and serves' PONG "$("$without" "$build/kv-cli" -u "${at//rdma|/}" PING)"
  is 'missing: to a client of a list, too' PONG "$("$without" "$build/kv-cli" -u "rdma|tcp://${at##*//}" PING 2>/dev/null)"
  stop "$server"
fi
total
