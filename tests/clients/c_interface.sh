#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The C interface used from C: the page's programs compile as C11 with gcc and clang, without
# warnings, and run over the transports that need no device; and the library exports its interface
# only.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$PWD/${AECONN_BUILD:-build}
case $build in *//*) build=$AECONN_BUILD ;; esac
folder=$(mktemp -d) || exit 1
passed=0 failed=0 server=''
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$folder"' EXIT
ok() { passed=$((passed + 1)); echo "ok $1"; }
bad() { failed=$((failed + 1)); echo "FAIL $1"; sed 's/^/  | /' "$folder/log" 2>/dev/null | tail -n 20; }
check() {  # NAME COMMAND...
  if "${@:2}" >"$folder/log" 2>&1; then ok "$1"; else bad "$1"; fi
}
export LD_LIBRARY_PATH=$build

compile() {  # COMPILER
  local name
  for name in server client; do
    "$1" -std=c11 -O1 -Wall -Wextra -Wpedantic -Werror -Ibindings/c "examples/c/echo_$name.c" \
      -o "$folder/$1-$name" -L"$build" -laeconn-c || return 1
  done
  "$1" -std=c11 -O1 -Wall -Wextra -Wpedantic -Werror -Ibindings/c examples/c/epoll_server.c \
    -o "$folder/$1-epoll" -L"$build" -laeconn-c || return 1
  "$1" -std=c11 -O1 -Wall -Wextra -Wpedantic -Werror -Ibindings/c examples/c/proxy.c \
    -o "$folder/$1-proxy" -L"$build" -laeconn-c || return 1
  "$1" -std=c11 -O1 -Wall -Wextra -Wpedantic -Werror -Ibindings/c examples/c/threaded_server.c \
    -o "$folder/$1-threads" -L"$build" -laeconn-c -pthread
}
threads() {  # COMPILER
  mkdir "$folder/$1-keys" && timeout 300 python3 tests/clients/threaded_server.py "$folder/$1-threads" "$folder/$1-keys"
}
exchange() {  # COMPILER URL [SERVER]
  local line='' tries
  : >"$folder/out"
  "$folder/$1-${3-server}" "$2" >"$folder/out" 2>&1 &
  server=$!
  for tries in $(seq 200); do
    line=$(head -n 1 "$folder/out")
    [ -n "$line" ] || ! kill -0 "$server" 2>/dev/null && break
    sleep 0.05
  done
  cat "$folder/out"
  local text; text=$(head -c 100000 /dev/zero | tr '\0' 'x')
  [ "$("$folder/$1-client" "$line" "$text")" = "$text" ]
  local status=$?
  kill "$server"; wait "$server" 2>/dev/null || status=1; server=''
  return $status
}
# With a client that stays, which the server has to close, and LeakSanitizer.
leaks() { gcc -g -fsanitize=address "$@"; }
staying() {  # URL SERVER
  local line status
  : >"$folder/out"
  "$folder/leaks-$2" "$1" >"$folder/out" 2>&1 &
  server=$!
  for _ in $(seq 200); do
    line=$(head -n 1 "$folder/out")
    [ -n "$line" ] || ! kill -0 "$server" 2>/dev/null && break
    sleep 0.05
  done
  timeout 60 python3 - "$line" "$server" <<'END'
import os, signal, socket, sys
host, port = sys.argv[1].split("://")[1].rsplit(":", 1)
peer = socket.create_connection((host, int(port)))
peer.sendall(b"hello")
assert peer.recv(5) == b"hello"
os.kill(int(sys.argv[2]), signal.SIGTERM)
assert peer.recv(5) == b""
END
  status=$?
  [ $status = 0 ] || kill "$server" 2>/dev/null
  wait "$server" || status=1
  server=''
  cat "$folder/out"
  return $status
}
# Through the proxy in front of an echo server: answers of a client that begins to read late, the
# end of each direction, a client that aborts, a target that is gone, and the stop.
proxy() {  # COMPILER URL-OF-THE-ECHO-SERVER
  timeout 120 python3 - "$folder/$1-server" "$folder/$1-proxy" "$2" <<'END'
import signal, socket, struct, subprocess, sys, threading, time

def start(*command):
    program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return program, program.stdout.readline().strip()

def connect():
    return socket.create_connection((host, int(port)), timeout=60)

echo, target = start(sys.argv[1], sys.argv[3])
proxy, url = start(sys.argv[2], "tcp://127.0.0.1:0", target)
host, port = url.split("://")[1].rsplit(":", 1)
try:
    sent = bytes(range(256)) * 4096 * 32  # 32 MiB: more than all buffers on the way hold
    peer = connect()
    def send():
        peer.sendall(sent)
        peer.shutdown(socket.SHUT_WR)
    sender = threading.Thread(target=send)
    sender.start()
    time.sleep(0.5)
    assert sender.is_alive(), "a client that does not read is not stopped"
    before = sum(map(int, open(f"/proc/{proxy.pid}/stat").read().split()[13:15]))
    time.sleep(0.5)
    after = sum(map(int, open(f"/proc/{proxy.pid}/stat").read().split()[13:15]))
    assert after - before < 20, f"{after - before} ticks of CPU while nothing can move"
    got = bytearray()
    while part := peer.recv(1 << 20):
        got += part
    sender.join()
    assert got == sent, f"{len(got)} bytes came back"
    aborting = connect()
    aborting.sendall(b"x")
    assert aborting.recv(1) == b"x"
    aborting.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    aborting.close()
    last = connect()
    last.sendall(b"last")
    assert last.recv(4) == b"last"
    echo.terminate()
    assert echo.wait(60) == 0
    assert last.recv(1) == b""
    last.close()
    try:
        with connect() as gone:
            assert gone.recv(1) == b"", "an answer of nobody"
    except ConnectionResetError:  # of connect(), too, if the proxy aborts early
        pass
    echo, _ = start(sys.argv[1], sys.argv[3])
    waiting = connect()  # ends during the stop
    waiting.sendall(b"waiting")
    assert waiting.recv(7, socket.MSG_WAITALL) == b"waiting"
    proxy.send_signal(signal.SIGTERM)
    waiting.close()
    _, said = proxy.communicate(timeout=60)
    assert "connect to" in said, said
    assert proxy.returncode == 0, f"status {proxy.returncode}: {said}"
finally:
    for each in echo, proxy:
        each.kill()
        each.wait()
END
}
sentence() {  # PROGRAM ARGUMENTS... EXPECTED
  local out
  out=$("${@:1:$#-1}" 2>&1) && return 1
  echo "$out"
  [[ $out == *"${!#}"* ]]
}
only_ours() {
  nm -D --defined-only "$build/libaeconn-c.so" | awk '{print $3}' | grep -vx 'AECONN_[0-9.]*' >"$folder/names"
  # A function keeps the version with which it was released.
  grep -qx 'aeconn_listen@@AECONN_0[.]2' "$folder/names" && grep -qx 'aeconn_abort@@AECONN_0[.]3' "$folder/names" &&
    ! grep -vx 'aeconn_[a-z_]*@@AECONN_[0-9.]*' "$folder/names"
}
# Threads may serve until the process has gone: what exit(3) destroyed, they would still use.
nothing_ends() {
  local undefined
  undefined=$(nm -A -u "$build/libaeconn.a" && nm -A -D -u "$build/libaeconn-c.so") || return 1
  ! grep __cxa_atexit <<<"$undefined"
}
# A static variable that is initialized when it is first used has a lock of the compiler's. A child of
# fork() waits for it for ever if another thread of its parent was about to initialize the variable.
nothing_is_guarded() {
  local undefined
  undefined=$(nm -A -u "$build/libaeconn.a" && nm -A -D -u "$build/libaeconn-c.so") || return 1
  ! grep __cxa_guard_acquire <<<"$undefined" ||
    { echo 'use ae::once() (ae/once.h) for a static variable of these files that is not constinit'; return 1; }
}
without_libraries() { ! (build=$folder && nothing_ends) && ! (build=$folder && nothing_is_guarded); }
# The linker's list has each function once, and in order.
listed_once() {
  local node
  for node in AECONN_0.2 AECONN_0.3; do
    sed -n "/^$node /,/^}/p" bindings/c/libaeconn-c.map | grep -o 'aeconn_[a-z_]*;' | LC_ALL=C sort -cu || return 1
  done
  ! grep -o 'aeconn_[a-z_]*;' bindings/c/libaeconn-c.map | sort | uniq -d | grep .
}
declared() { grep -oE '\baeconn_[a-z_]+\(' bindings/c/aeconn.h | tr -d '(' | sort -u; }
all_there() { diff <(declared) <(sed 's/@.*//' "$folder/names" | sort -u); }

check 'the library shows its interface and nothing else' only_ours
check 'and all of it' all_there
check 'each function has one version' listed_once
check 'exit(3) destroys nothing of the library' nothing_ends
check 'fork() leaves no variable of the library in the making' nothing_is_guarded
check 'which is not said of a library that is not there' without_libraries
for compiler in gcc clang; do
  check "$compiler compiles the programs as C11 without a warning" compile "$compiler"
  check "$compiler: an echo over tcp" exchange "$compiler" tcp://127.0.0.1:0
  check "$compiler: an echo over a Unix socket" exchange "$compiler" "unix://$folder/$compiler"
  check "$compiler: an echo of a program with a loop of its own" exchange "$compiler" tcp://127.0.0.1:0 epoll
  check "$compiler: the proxy, over tcp and a Unix socket" proxy "$compiler" "unix://$folder/$compiler-echo"
done
case $(cat "$build/flags" 2>/dev/null) in
  *-fsanitize*) ;; # its own run-time library reports
  *)
    check 'the programs compile with AddressSanitizer' compile leaks
    check 'LeakSanitizer: the echo server frees all, with a client that stays' staying tcp://127.0.0.1:0 server
    check 'LeakSanitizer: the server with its own loop, too' staying tcp://127.0.0.1:0 epoll
    check 'LeakSanitizer: the client and the server' exchange leaks tcp://127.0.0.1:0
    check 'LeakSanitizer: the proxy' proxy leaks "unix://$folder/leaks-echo" ;;
esac
check 'the server of docs/c-threads.md, its workers, ways of stopping and privileges' threads gcc
check 'a wrong URL is one sentence' sentence "$folder/gcc-server" smoke://1 'smoke'
check 'a wrong URL of the server with threads is one sentence' sentence "$folder/gcc-threads" - smoke://1 'smoke'
check 'a wrong URL of the proxy is one sentence' sentence "$folder/gcc-proxy" smoke://1 smoke://2 'smoke'
check 'a wrong URL of the server with its own loop is one sentence' sentence "$folder/gcc-epoll" smoke://1 'smoke'
check 'a server that is not there is one sentence' sentence "$folder/gcc-client" tcp://127.0.0.1:1 'refused'
echo "$passed passed, $failed failed"
[ $failed = 0 ]
