#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A list of schemes with shm, shm|tcp://HOST:PORT?shm-path=PATH, between processes: kv-cli, Python
# and C against kv-server; another server at the port, another network namespace, no server at the
# path, and a server that comes back.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/kit"
shm=$work/kv.shm
serve() { begin "$kv_server" "$@" && port=$(sed -nE 's/^tcp:.*:([0-9]+)$/\1/p' <<<"$at"); }
k() { timeout 20 "$kv_cli" "$@" 2>&1; }

serve --listen "shm|tcp://127.0.0.1:0?shm-path=$shm" || { total; exit; }
first=$server url="shm|tcp://127.0.0.1:$port?shm-path=$shm"
is 'the server names both addresses' "tcp://127.0.0.1:$port shm://$shm" "${at/$'\n'/ }"
has '--verbose says what carries it' "^kv-cli: shm $shm"$'\n''PONG$' "$(k -u "$url" --verbose PING)"
has 'CLIENT INFO says it, too' "transport=shm path=shm_$shm " "$(k -u "$url" CLIENT INFO)"
has 'on several loops' " path=shm_$shm" "$(
  serve --loops 2 --listen "shm|tcp://127.0.0.1:0?shm-path=$shm.2" >/dev/null &&
    k -u "shm|tcp://127.0.0.1:$port?shm-path=$shm.2" CLIENT INFO; kill "$server")"
has 'no server at the path' "by tcp; not shm: connect to $shm-none: No such file or directory"$'\n'"^.*kv-cli: tcp 127" \
  "$(k -u "$url-none" --verbose PING)"
has 'the doctor tries both' "ok    shm: path: shm $shm; a server of RESP answered" "$(timeout 60 "$build/aeconn-doctor" "$url" 2>&1)"

# ---- another server, another namespace -----------------------------------------------------------
if serve --listen tcp://127.0.0.1:0; then
  out=$(k -u "shm|tcp://127.0.0.1:$port?shm-path=$shm" CLIENT INFO)
  has 'the path of another server' "by tcp; not shm: .*refused: this server serves .*, not 127.0.0.1:$port" "$out"
  has 'so its own one answers' 'transport=tcp path=tcp_127' "$out"
  stop "$server"
fi
if unshare -n true 2>/dev/null; then
  out=$(timeout 20 unshare -n "$kv_cli" -u "$url" PING 2>&1)
  has 'another network namespace' 'not shm: .*refused: the client is in another network namespace; not tcp: ' "$out"
else
  echo 'skipped: no network namespace of its own'
fi

# ---- Python and C --------------------------------------------------------------------------------
is 'Python' "shm $shm" "$(AECONN_LIBRARY=$build/libaeconn-c.so PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=bindings/python \
  timeout 20 python3 - "$url" <<'END' 2>&1
import sys, aeconn
with aeconn.connect(sys.argv[1]) as socket:
    socket.sendall(b"PING\r\n")
    assert socket.recv(100) == b"+PONG\r\n"
    print(socket.path())
END
)"
if cc=$(command -v cc); then
  "$cc" -std=c11 -Ibindings/c -o "$work/client" examples/c/echo_client.c -L"$build" -laeconn-c 2>&1
  # It waits for as many bytes as it has sent.
  has 'C' 'ten-letter' "$(LD_LIBRARY_PATH=$build timeout 20 "$work/client" "$url" $'ECHO ten-letter\r\n' 2>&1)"
fi

# ---- a server that comes back --------------------------------------------------------------------
{ kill -KILL "$first" && wait "$first"; } 2>/dev/null  # without the shell's message
has 'a socket that its server left' 'not shm: connect to .*: Connection refused; not tcp: ' "$(k -u "$url" PING)"
if serve --listen "$url"; then
  has 'the next server has it' "^kv-cli: shm $shm" "$(k -u "$url" --verbose PING)"
  stop "$server"
fi
is 'the socket goes with its server' '' "$(ls "$work" | grep -x kv.shm)"
total
