#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The programs in examples/, and the echo servers of docs/: each compiles without warnings against
# the built library, and does what its first comment says, over sockets.
#
#   tests/clients/examples.sh        AECONN_BUILD (default build): the folder with libaeconn.a
#                                    JOBS (default 2): compilers at a time
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/kit"

# ---- compiling ----------------------------------------------------------------------------------
# The compiler and flags that the library was built with.
made_with=$(sed 's/^ccache //' "$build/flags" 2>/dev/null)
cxx=${CXX:-${made_with%% *}} cxx=${cxx:-g++}
sanitize=$(grep -o -e '-fsanitize=[a-z,]*' <<<"$made_with" | sort -u | tr '\n' ' ')
rdma='' tls=''
case $made_with in *-DAECONN_RDMA_LINK=1*) rdma='-lrdmacm -libverbs' ;; esac
case $made_with in *-DAECONN_TLS=1*) tls='-lssl -lcrypto' ;; esac
compile() {  # SOURCE FLAGS...: the program has the name of the source
  local name; name=$(basename "$1" .cc)
  # shellcheck disable=SC2086
  $cxx -std=c++20 -O0 -Wall -Wextra -Wshadow -Wconversion -Werror $sanitize -I. -Ibindings "$1" -o "$work/$name" \
    "$build/libaeconn.a" "${@:2}" $tls $rdma -lev -lfmt -pthread >"$work/$name.compiler" 2>&1
  echo $? >"$work/$name.status"
}
has_header() { echo "#include <$1>" | $cxx -E -x c++ - >/dev/null 2>&1; }

# In CI everything is installed, so a missing package is an error.
missing() {  # NAME PACKAGE
  if [ "${CI-}" = true ]; then fail "$1" "CI has all packages, but not $2"
  else echo "SKIPPED: $1: the package $2 is not installed"; fi
}
# This machine's hiredis if it is new enough, or a newer release's.
find_hiredis() {
  local folder library
  if pkg-config --atleast-version=1.0 hiredis 2>/dev/null; then hiredis=(-lhiredis); return; fi
  folder=$(tools/foreign trixie libhiredis-dev 2>"$work/why") || return
  library=$(find "$folder/usr/lib" -name libhiredis.a)
  hiredis=(-isystem "$folder/usr/include" "$library")
}

sources=(docs/echo_server.cc docs/echo_server_co.cc)
for source in examples/*.cc; do
  name=$(basename "$source" .cc)
  case $name in
    on_libuv) has_header uv.h || { missing "$name" libuv1-dev; continue; } ;;
    on_asio) has_header asio.hpp || { missing "$name" libasio-dev; continue; } ;;
    # A package of another release, which needs a mirror; as in adapters/hiredis.sh.
    hiredis_client) find_hiredis || { echo "SKIPPED: $name: $(tail -n 1 "$work/why")"; continue; } ;;
  esac
  sources+=("$source")
done
running=0
for source in "${sources[@]}"; do
  [ $running -lt "${JOBS:-2}" ] || { wait -n; running=$((running - 1)); }
  case $source in
    */on_libuv.cc) compile "$source" -luv & ;;
    */hiredis_client.cc) compile "$source" "${hiredis[@]}" & ;;
    *) compile "$source" & ;;
  esac
  running=$((running + 1))
done
wait
for source in "${sources[@]}"; do
  name=$(basename "$source" .cc)
  if [ "$(cat "$work/$name.status")" = 0 ]; then ok "$source compiles without a warning"
  else fail "$source compiles without a warning" "$(head -c 2000 "$work/$name.compiler")"; fi
done
there() { [ -x "$work/$1" ]; }
there client || { total; exit; }

# ---- common properties ---------------------------------------------------------------------------
for source in examples/*.cc examples/*.py examples/c/*.c docs/echo_server.cc docs/echo_server_co.cc; do
  case $source in examples/*) link=${source#examples/} ;; *) link=../$source ;; esac
  is "examples/README.md has $source" yes "$(grep -qF "]($link)" examples/README.md && echo yes)"
done
for name in client tls_reload loop_group graceful_stop rpc_server rpc_client on_libuv on_asio hiredis_client; do
  there $name || continue
  refuses "$name without arguments is one sentence and status 1" "^usage: $name" "$work/$name"
done
refuses 'client: nobody listens' "connect to .*$work/nobody" "$work/client" "unix://$work/nobody"
refuses 'client: a bad URL' nonsense "$work/client" nonsense

# ---- servers ------------------------------------------------------------------------------------
# Starts one; sets `server`, its process, `log`, and `at`, the URL that it prints.
launch() {  # COMMAND...
  log=$work/launched${#servers[@]}.log
  : >"$log"
  "$@" >"$log" 2>&1 &
  server=$!
  servers+=("$server")
  said_url() { grep -q '^[a-z+]*://.' "$log" || ! kill -0 "$server" 2>/dev/null; }
  soon said_url
  at=$(grep -m 1 '^[a-z+]*://.' "$log")
  [ -n "$at" ] || { fail "$1 starts" "$(cat "$log")"; return 1; }
}
ask() { printf '%s\n' "${@:2}" | timeout 60 "$work/client" "$at$1" 2>&1; }  # OPTIONS LINES...
# A peer that aborts with bytes under way.
abort() {
  timeout 60 python3 - "$at" <<'END'
import socket, struct, sys
where = sys.argv[1].split("://")[1]
if sys.argv[1].startswith("unix"):
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(where)
else:
    host, port = where.rsplit(":", 1)
    peer = socket.create_connection((host, int(port)))
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
peer.sendall(b"x" * 100000)
peer.close()
END
}
echoes() {  # NAME STATUS-AFTER-SIGTERM COMMAND...: the last argument becomes the URL
  local url
  for url in tcp://127.0.0.1:0 "unix://$work/$1.sock"; do
    launch "${@:3}" "$url" || continue
    is "$1: lines come back over ${url%%:*}" $'one\ntwo\n\nfour' "$(ask '' one two '' four)"
    abort
    is "$1: a peer that aborts does not end it" after "$(ask '' after)"
    stop "$server"
    is "$1: its status after SIGTERM" "$2" "$status"
  done
}
there echo_server && echoes echo_server 143 "$work/echo_server"
there echo_server_co && echoes echo_server_co 143 "$work/echo_server_co"
for name in echo_server echo_server_co; do
  there $name && has "$name: without a URL it says what to do" 'name the URLs to listen on' "$(timeout 10 "$work/$name" 2>&1)"
done
there on_libuv && echoes on_libuv 0 "$work/on_libuv"
there on_asio && echoes on_asio 0 "$work/on_asio"
for name in tls_reload loop_group graceful_stop rpc_server on_libuv on_asio; do
  there $name || continue
  case $name in
    tls_reload) rest=("$work/none.pem" "$work/none.key") ;;
    loop_group | rpc_server) rest=(2) ;;
    *) rest=() ;;
  esac
  refuses "$name: a bad URL" nonsense "$work/$name" nonsense "${rest[@]}"
done

# ---- client: where its lines come from ----------------------------------------------------------
if launch "$work/echo_server" tcp://127.0.0.1:0; then
  seq 1000 >"$work/numbers"
  is 'client: lines of a file' "$(cat "$work/numbers")" "$("$work/client" "$at" <"$work/numbers" 2>&1)"
  is 'client: a last line without its newline' $'one\ntwo' "$(printf 'one\ntwo' | "$work/client" "$at" 2>&1)"
  is 'client: no lines' '' "$("$work/client" "$at" </dev/null 2>&1)"
  stop "$server"
fi

# ---- loop_group ---------------------------------------------------------------------------------
if there loop_group && launch "$work/loop_group" tcp://127.0.0.1:0 3; then
  said=$(timeout 60 python3 - "$at" <<'END' 2>&1
import socket, sys
host, port = sys.argv[1].split("://")[1].rsplit(":", 1)
peers = [socket.create_connection((host, int(port))) for _ in range(6)]
for number, peer in enumerate(peers):
    peer.sendall(b"%d" % number)
print(*(peer.recv(10).decode() for peer in peers))
END
  )
  is 'loop_group: six connections at once' '0 1 2 3 4 5' "$said"
  abort
  is 'loop_group: a peer that aborts does not end it' after "$(ask '' after)"
  stop "$server"
  is 'loop_group: its status after SIGTERM' 0 "$status"
  is 'loop_group: each of its loops had connections' 3 "$(grep -c '^loop [0-2]: [1-9][0-9]* connections$' "$log")"
fi

# ---- tls_reload ---------------------------------------------------------------------------------
certify() {  # NAME
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=$1" \
    -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout "$work/$1.key" -out "$work/$1.pem" 2>"$work/openssl.log"
}
use() { cp "$1.pem" "$work/server.pem"; cp "$1.key" "$work/server.key"; }
shown() {  # the name in the certificate that a new client is shown
  openssl s_client -connect "${at#tls://}" </dev/null 2>/dev/null | openssl x509 -noout -subject | sed 's/.*= *//'
}
hangup() {  # WORDS: what it says after SIGHUP, once more than before
  local before; before=$(grep -c "$1" "$log")
  kill -HUP "$server"
  said_more() { [ "$(grep -c "$1" "$log")" -gt "$2" ] || ! kill -0 "$server" 2>/dev/null; }
  soon said_more "$1" "$before"
}
if [ -z "$tls" ]; then echo 'SKIPPED: tls_reload: the library was built without TLS'
elif ! command -v openssl >/dev/null; then missing tls_reload openssl
elif there tls_reload; then
  certify first && certify second || fail 'certificates are made' "$(cat "$work/openssl.log")"
  use "$work/first"
  if launch "$work/tls_reload" tls://127.0.0.1:0 "$work/server.pem" "$work/server.key"; then
    mkfifo "$work/lines"
    "$work/client" "$at?ca=$work/first.pem" <"$work/lines" >"$work/answers" 2>&1 &
    old=$!
    servers+=("$old")
    exec 5>"$work/lines"
    answered() { [ "$(wc -l <"$work/answers")" -ge "$1" ] || ! kill -0 "$old" 2>/dev/null; }
    echo before >&5
    soon answered 1
    is 'tls_reload: the certificate at first' first "$(shown)"
    use "$work/second"
    hangup '^reloaded$'
    is 'tls_reload: the certificate after SIGHUP' second "$(shown)"
    is 'tls_reload: a new client trusts that' new "$(ask "?ca=$work/second.pem" new)"
    has 'tls_reload: and not the old one' certificate "$(ask "?ca=$work/first.pem" new)"
    echo after >&5
    soon answered 2
    is 'tls_reload: the old connection goes on' $'before\nafter' "$(cat "$work/answers")"
    exec 5>&-
    ended "$old"
    is 'tls_reload: and ends as it should' 0 "$status"
    echo garbage >"$work/server.pem"
    hangup '^the old certificate stays: '
    is 'tls_reload: a bad file changes nothing' new "$(ask "?ca=$work/second.pem" new)"
    abort
    is 'tls_reload: a peer that is none of TLS does not end it' after "$(ask "?ca=$work/second.pem" after)"
    stop "$server"
    is 'tls_reload: its status after SIGTERM' 0 "$status"
  fi
  refuses 'tls_reload: no certificate' "$work/none.pem" "$work/tls_reload" tls://127.0.0.1:0 "$work/none.pem" "$work/none.key"
fi

# ---- graceful_stop ------------------------------------------------------------------------------
if there graceful_stop && launch "$work/graceful_stop" tcp://127.0.0.1:0; then
  abort
  said=$(timeout 60 python3 - "$at" "$server" <<'END' 2>&1
import os, signal, socket, sys
host, port = sys.argv[1].split("://")[1].rsplit(":", 1)
peers = [socket.create_connection((host, int(port))) for _ in range(40)]
answered = 0

def collect():
    global answered
    for number, peer in enumerate(peers):
        want, got = b"request of %d\n" % number, b""
        while len(got) < len(want):
            more = peer.recv(100)
            if not more:
                break
            got += more
        answered += got == want

for turn in range(4):
    for number, peer in enumerate(peers):
        peer.sendall(b"request of %d\n" % number)
        if turn == 3 and number == len(peers) - 1:
            os.kill(int(sys.argv[2]), signal.SIGTERM)  # all are under way
    collect()
print(answered, "answered;", sum(peer.recv(1) == b"" for peer in peers), "ended;", end=" ")
try:
    socket.create_connection((host, int(port)))
    print("it still accepts")
except ConnectionRefusedError:
    print("refused")
END
  )
  is 'graceful_stop: all that is under way at SIGTERM is answered, then nobody is served' \
    '160 answered; 40 ended; refused' "$said"
  ended "$server"
  is 'graceful_stop: its status' 0 "$status"
  is 'graceful_stop: it had no need of its deadline' "$at" "$(cat "$log")"
fi

if there graceful_stop && launch "$work/graceful_stop" tcp://127.0.0.1:0; then
  # A peer that does not read: it sends until its answers, of which it takes 4 KiB, wait at the server.
  timeout 60 python3 - "$at" "$server" <<'END' >"$work/stuck" 2>&1
import os, select, signal, socket, sys, time
host, port = sys.argv[1].split("://")[1].rsplit(":", 1)
server = int(sys.argv[2])
peer = socket.socket()
peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
peer.connect((host, int(port)))
peer.setblocking(False)
def waiting():  # bytes that the server's socket has not got rid of: proc_pid_net(5), tx_queue
    with open("/proc/net/tcp") as table:
        for _, local, remote, _, queues, *_ in map(str.split, table):
            if local.endswith(":%04X" % int(port)) and remote.endswith(":%04X" % peer.getsockname()[1]):
                return int(queues.split(":")[0], 16)
    return 0
while waiting() < 65536:
    try:
        peer.send(b"x" * 65536)
    except BlockingIOError:
        time.sleep(0.01)
def listens():
    try:
        socket.create_connection((host, int(port))).close()
        return True
    except ConnectionRefusedError:
        return False
os.kill(server, signal.SIGTERM)
while listens():
    time.sleep(0.01)
time.sleep(0.2)  # signals closer together count as one
os.kill(server, signal.SIGINT)
gone = select.poll()
gone.register(peer, 0)  # nothing but its end by force: it still does not read
gone.poll(30000)
try:
    while peer.recv(65536):
        pass
    print("ended")
except ConnectionResetError:
    print("reset")
END
  is 'graceful_stop: a second signal cuts a peer that does not read' reset "$(cat "$work/stuck")"
  ended "$server"
  is 'graceful_stop: its status then' 1 "$status"
  has 'graceful_stop: and it says so' '^1 connections are cut, with [1-9][0-9]* bytes unsent$' "$(tail -n 1 "$log")"
fi

# ---- rpc_server, rpc_client ----------------------------------------------------------------------
for url in tcp://127.0.0.1:0 "unix://$work/rpc.sock"; do
  there rpc_server && there rpc_client && launch "$work/rpc_server" "$url" 3 || continue
  is "rpc: five hundred requests over ${url%%:*}" "$(seq -f 'REQUEST %g' 500 | sort)" \
    "$(seq -f 'request %g' 500 | tr '\n' '\0' | timeout 60 xargs -0 "$work/rpc_client" "$at" 2>&1 | sort)"
  stop "$server"
  is 'rpc: the status of the server' 0 "$status"
done
if there rpc_server && launch "$work/rpc_server" tcp://127.0.0.1:0 2; then
  said=$(timeout 60 python3 - "$at" "$server" <<'END' 2>&1
import os, signal, socket, struct, sys
host, port = sys.argv[1].split("://")[1].rsplit(":", 1)
def connect():
    return socket.create_connection((host, int(port)))
def frame(number, text, patience=60000):
    return struct.pack("!III", len(text), number, patience) + text
def answer(peer):
    def exactly(size):
        got = b""
        while len(got) < size:
            more = peer.recv(size - len(got))
            if not more:
                raise EOFError
            got += more
        return got
    size, number, status = struct.unpack("!III", exactly(12))
    return number, status, exactly(size).decode()
bad = connect()
bad.sendall(struct.pack("!III", 1 << 31, 1, 1000))
print("a size that cannot be:", bad.recv(1))
one = connect()
for byte in frame(1, b"in pieces"):  # each in a segment of its own
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    one.sendall(bytes([byte]))
print(answer(one))
one.sendall(frame(2, b"sleep 3000") + frame(3, b"sleep 20000", 50) + frame(4, b"x" * 65524))
print(*(f"{n} {status} {len(text)}" for n, status, text in (answer(one), answer(one))))
idle = connect()
idle.sendall(frame(5, b"sleep 0"))
print(answer(idle))
os.kill(int(sys.argv[2]), signal.SIGTERM)
print("an idle peer:", idle.recv(1))
print("a request under way:", answer(one), one.recv(1))
END
  )
  is 'rpc: frames in pieces, too long, too late, and under way at SIGTERM' "a size that cannot be: b''
(1, 0, 'IN PIECES')
4 0 65524 3 1 0
(5, 0, 'SLEEP 0')
an idle peer: b''
a request under way: (2, 0, 'SLEEP 3000') b''" "$said"
  ended "$server"
  is 'rpc: the status of the server that had one under way' 0 "$status"
fi
if there rpc_client && launch "$work/rpc_server" "unix://$work/again.sock" 2; then
  mapfile -t requests < <(seq -f 'sleep %g' 500 531)  # 32 of half a second, eight at a time
  timeout 60 "$work/rpc_client" "$at" "${requests[@]}" >"$work/answered" 2>&1 &
  asking=$!
  servers+=("$asking")
  has_answers() { [ -s "$work/answered" ] || ! kill -0 "$asking" 2>/dev/null; }
  soon has_answers
  stop "$server"
  is 'rpc: the status of the server that was asked all the time' 0 "$status"
  is 'rpc_client: it has more to ask when the server has gone' yes "$([ "$(wc -l <"$work/answered")" -lt 32 ] && echo yes)"
  launch "$work/rpc_server" "unix://$work/again.sock" 2
  ended "$asking"
  is 'rpc_client: it goes on when the server is there again' "$(seq -f 'SLEEP %g' 500 531)" "$(sort "$work/answered")"
  is 'rpc_client: its status' 0 "$status"
  stop "$server"
fi

# ---- kv-server -----------------------------------------------------------------------------------
for loops in 1 3; do
  start --listen tcp://127.0.0.1:0 --loops $loops || continue
  timeout 60 python3 - "${urls[0]##*:}" "$server" <<'END' >"$work/stopped" 2>&1
import os, signal, socket, sys
port, server = int(sys.argv[1]), int(sys.argv[2])
peers = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
for peer in peers:
    peer.sendall(b"PING\r\n")
    assert peer.recv(100) == b"+PONG\r\n"
big, half, idle = peers
big.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$8000000\r\n" + b"x" * 8000000 + b"\r\n")
assert big.recv(10) == b"+OK\r\n"
big.sendall(b"GET a\r\n" * 3)
half.sendall(b"*2\r\n$4\r\nECHO\r\n$5\r\nhel")
assert big.recv(3) == b"$80"
os.kill(server, signal.SIGTERM)
print("idle:", idle.recv(1))
half.sendall(b"lo\r\n")
print("half a request:", half.recv(100), half.recv(1))
size = 3
while more := big.recv(1 << 20):
    size += len(more)
print("replies under way:", size)
END
  is "kv-server, loops $loops: what is under way at SIGTERM is answered" \
    "idle: b''"$'\n'"half a request: b'\$5\\r\\nhello\\r\\n' b''"$'\n''replies under way: 24000036' "$(cat "$work/stopped")"
  ended "$server"
  is "kv-server, loops $loops: its status" 0 "$status"
done

# ---- hiredis_client -----------------------------------------------------------------------------
if there hiredis_client && start --listen tcp://127.0.0.1:0 --listen "unix://$work/kv.sock"; then
  for at in "${urls[@]}"; do
    client() { timeout 60 "$work/hiredis_client" "$at" "$@" 2>&1; }
    is "hiredis_client: SET over ${at%%:*}" OK "$(client SET greeting "hello you")"
    is "hiredis_client: GET over ${at%%:*}" 'hello you' "$(client GET greeting)"
  done
  is 'hiredis_client: what is not there' '(nil)' "$(client GET nothing)"
  refuses 'hiredis_client: an error of the server' '^ERR ' "$work/hiredis_client" "$at" NOSUCHCOMMAND
  stop "$server"
  refuses 'hiredis_client: nobody listens' nobody "$work/hiredis_client" "unix://$work/nobody" PING
  refuses 'hiredis_client: a bad URL' nonsense "$work/hiredis_client" nonsense PING
fi

# ---- echo.py ------------------------------------------------------------------------------------
if [ -n "$sanitize" ]; then echo 'SKIPPED: echo.py: a Python without sanitizers cannot load this library'
else
  export AECONN_LIBRARY=$build/libaeconn-c.so PYTHONPATH=bindings/python PYTHONDONTWRITEBYTECODE=1
  python=/usr/bin/python3  # the distribution's
  for url in tcp://127.0.0.1:0 "unix://$work/py.sock"; do
    launch $python examples/echo.py serve "$url" || continue
    is "echo.py: a line comes back over ${url%%:*}" hello "$(timeout 60 $python examples/echo.py ask "$at" hello 2>&1)"
    is "echo.py: and to the client in C++" $'one\ntwo' "$(ask '' one two)"
    abort
    is 'echo.py: a peer that aborts does not end it' after "$(ask '' after)"
    stop "$server"
    is 'echo.py: its status after SIGTERM' 0 "$status"
  done
  refuses 'echo.py: nobody listens' nobody $python examples/echo.py ask "unix://$work/nobody" hello
  refuses 'echo.py: a bad URL' nonsense $python examples/echo.py serve nonsense
  refuses 'echo.py without arguments' '^usage: ' $python examples/echo.py
fi
total
