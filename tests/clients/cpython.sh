#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# CPython's own tests of sockets and asyncio streams, with the package aeconn in place of the socket
# module: cpython.py lists which are run. With this release's Python and Debian 13's.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/kit"
AECONN_LIBRARY=$build/libaeconn-c.so
export AECONN_LIBRARY PYTHONDONTWRITEBYTECODE=1 TMPDIR=$work
python=/usr/bin/python3  # the distribution's, whose package has the tests
version() { "$@" -c 'import platform; print(platform.python_version())'; }
parts=(tcp unix asyncio)
"$kv_server" --listen tls://127.0.0.1:0 2>&1 | grep -q 'tls is not available' || parts+=(tls)

# In parallel, since they mostly wait.
begin_suite() {  # LOG PYTHON...
  local program=$PWD/tests/clients/cpython.py
  (cd "$work" && exec timeout 240 "${@:2}" -W ignore "$program" "${parts[@]}") >"$1" 2>&1 &
}
suite() {  # NAME LOG PROCESS
  if wait "$3"; then ok "$1: $(paste -sd';' "$2" | sed 's/;/; /g')"
  else fail "$1" "$(grep -A 12 '^FAIL' "$2" | head -n 60; tail -n 6 "$2")"; fi
}
ours='' theirs=''
if $python -c 'import test.test_socket, test.test_asyncio' 2>/dev/null; then
  begin_suite "$work/ours.log" $python
  ours=$!
elif [ "${CI-}" = true ]; then
  fail 'the tests of Python itself' 'they are not installed: tools/packages test'
else
  echo 'SKIPPED: the tests of Python itself: libpython3-testsuite is not installed'
fi
if [[ $(version $python) == 3.1[0-2].* ]] &&
  folder=$(tools/foreign trixie libpython3.13-testsuite python3.13 2>"$work/why"); then
  newer=("$PWD/tools/foreign" --run "$folder" python3.13)
  begin_suite "$work/theirs.log" "${newer[@]}"
  theirs=$!
else
  echo "SKIPPED: Python of trixie: $(cat "$work/why" 2>/dev/null)"
fi
[ -z "$ours" ] || suite "Python $(version $python)" "$work/ours.log" "$ours"
[ -z "$theirs" ] || suite "Python $(version "${newer[@]}")" "$work/theirs.log" "$theirs"
total
