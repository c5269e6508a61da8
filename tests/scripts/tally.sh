#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# tests/tally: the sums of lanes, a lane that dies, and that ending a run leaves no processes.
set -u
# shellcheck source=tests/scripts/kit
. "$(dirname "$0")/kit"
trap 'pkill -KILL -f "$work"; rm -rf "$work"' EXIT
ln -s "$(command -v sleep)" "$work/sleep"  # puts the folder's name into each process of a run
echo 'echo "2 passed, 0 failed"' >"$work/good"
echo 'echo "FAIL it: is not"; echo "1 passed, 1 failed"; exit 1' >"$work/bad"
# The parts are scripts in process groups of their own (by `timeout`), which have such parts
# themselves.
cat >"$work/part" <<'END_PART'
logs=$1
. tests/tally
"$1/sleep" 600 &
script inner 600 "$1/sleep" 600
END_PART
cat >"$work/run" <<'END_RUN'
top=$1 logs=$1
. tests/tally
exec 3>&1
sums() { script good 60 bash "$top/good"; script bad 60 bash "$top/bad"; }
dies() { script good 60 bash "$top/good"; kill -KILL "$BASHPID"; }
long() { script long 600 bash "$top/part" "$top"; script next 60 touch "$top/next"; }
lanes_started=$SECONDS
lane first "$2" & first=$!
lane second "$3" & second=$!
end_lane first $first
end_lane second $second
total
END_RUN

sums() { bash "$work/run" "$work" "$1" sums 2>/dev/null | tail -n 3; }
is 'lanes: their sums, and the names of what failed' "$(printf '%s\n' 'FAIL first: bad: it: is not' \
  'FAIL second: bad: it: is not' '6 passed, 2 failed')" "$(sums sums)"
is 'lanes: one that dies is a failure' "$(printf '%s\n' 'FAIL first: ended with status 137' \
  'FAIL second: bad: it: is not' '3 passed, 2 failed')" "$(sums dies)"

begun() { [ "$(pgrep -fc "^$work/sleep")" = 4 ]; }
gone() { ! pgrep -f "$work" >/dev/null; }
end() {  # SIGNAL STATUS WHOM
  setsid bash "$work/run" "$work" long long >"$work/out" 2>&1 &
  run=$!
  soon begun
  is "SIG$1 to $3: a run of two lanes is there" 0 $?
  kill "-$1" -- "$([ "$3" = it ] || echo -)$run"
  wait $run 2>/dev/null  # bash reports how it ended
  is "SIG$1 to $3: status" "$2" $?
  soon gone
  is "SIG$1 to $3: nothing is left" '' "$(pgrep -af "$work")"
  is "SIG$1 to $3: the next part did not begin" no "$([ -e "$work/next" ] && echo yes || echo no)"
  pkill -KILL -f "$work"
  rm -f "$work/next"
}
end TERM 143 it
end TERM 143 'its group'
end HUP 129 it
end HUP 129 'its group'
total
