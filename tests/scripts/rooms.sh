#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Includes point downwards only: ae/ and conn/ are compared with the list of rooms (layers:
# tests/scripts/rooms), and docs/architecture.md has a line for each room, which names the room's
# files. conn/connection.h is short, and only for users. Classes have at most 40 functions and 8
# bools, but for those that tests/scripts/class_sizes lists. Installed headers include only such.
set -u
# shellcheck source=tests/scripts/kit
. "$(dirname "$0")/kit"

said=$(tests/scripts/rooms.py) || said+=' (failed)'
is 'each file includes what its room may' '' "$(tail -n 1 <<<"$said" | grep -v '^[0-9]* rooms on')"
sed '$!d' <<<"$said"

# A line for each room, and for each folder that uses the library.
rooms=$(sed -n 's/^\([a-z][a-z/]*\) *|.*/\1/p' tests/scripts/rooms)
without=''
for folder in $rooms bench tests bindings/*/ examples/*/ programs/*/; do
  grep -qF "| \`${folder%/}/\` |" docs/architecture.md || without+=" ${folder%/}"
done
is 'docs/architecture.md has a line for each' '' "$without"
gone=''
for folder in $(sed -n 's/^| `\([a-z_/]*\)\/` |.*/\1/p' docs/architecture.md); do
  [ -d "$folder" ] || gone+=" $folder"
done
is 'and none for what is gone' '' "$gone"
lines=$(wc -l <docs/architecture.md)
is 'it is one page' yes "$([ "$lines" -le 100 ] && echo yes || echo "$lines lines")"
said=$(tests/scripts/file_index.py) || said+=' (failed)'
is 'the line of a folder names its files, and no others' '' "$(sed '$d' <<<"$said")"
sed '$!d' <<<"$said"

# Detects a file without a name there, a name without a file, and a folder without a line.
mkdir -p "$work/index/docs" "$work/index/ae/core"
touch "$work/index/ae/"{loops,spin,time}.h "$work/index/ae/core/"{loops.cc,fork.cc,fork.h,README.md}
# shellcheck disable=SC2016 # what is in quotes is in the page
{
  echo '| `ae/` | The loop. `loops` what `run()` does; `spin` |'
  echo '| `ae/` | More of it. `time.h`, whose clock is in `ae/core/loops` |'
  echo '| `ae/core/` | `fork`, `loops` |'
} >"$work/index/docs/architecture.md"
index() { tests/scripts/file_index.py "$work/index" | paste -sd ' '; }
is 'rows that name all files are well' '5 units' "$(index)"
touch "$work/index/ae/once.h"
is 'rows that lack one are not' 'ae/: its row does not name once 6 units' "$(index)"
rm "$work/index/ae/"{once,spin}.h
is 'nor are rows that name one too many' 'ae/: its row names spin, which it does not have 4 units' "$(index)"
touch "$work/index/ae/spin.h"
rm "$work/index/ae/core/"fork.*
is 'nor is a row whose unit is gone with all its files' \
  'ae/core/: its row names fork, which it does not have 4 units' "$(index)"
mv "$work/index/ae/core/loops.cc" "$work/index/ae/core/fork.cc"
is 'nor is one that names a path that is gone' "$(paste -sd ' ' <<'END'
ae/: its row names ae/core/loops, which is not in the tree
ae/core/: its row names loops, which it does not have
4 units
END
)" "$(index)"
mkdir "$work/index/conn"
touch "$work/index/conn/co.h"
is 'nor is a folder without a row' 'conn/ has no row' "$(tests/scripts/file_index.py "$work/index" | grep '^conn')"

# Detects an include that points upwards, a file in no room, and a new include cycle.
mkdir -p "$work/tree/ae" "$work/tree/conn/url" "$work/tree/conn/new"
like_a_tree() { printf '#include "%s"\n' "$2" >"$work/tree/$1"; }
differs() { tests/scripts/rooms.py "$work/tree" | grep -v '^[0-9]* ' | grep -vE 'can go$|^this knot' | paste -sd ' '; }
like_a_tree conn/url/options.cc ae/time.h
is 'an include that runs down is well' '' "$(differs)"
like_a_tree conn/url/options.cc conn/kit/resolver.h
is 'one that runs up is not' 'conn/url/options.cc includes conn/kit/resolver.h: conn/url may not include conn/kit' "$(differs)"
like_a_tree conn/url/options.cc ae/time.h
like_a_tree conn/new/a.h ae/time.h
is 'nor is a file in no room' 'conn/new/a.h is in no room' "$(differs)"
rm "$work/tree/conn/new/a.h"
like_a_tree conn/options.cc ae/time.h
is 'nor is a source beside the public headers' \
  'conn/options.cc would not be compiled: sources lie in the folders of the rooms' "$(differs)"
rm "$work/tree/conn/options.cc"
like_a_tree conn/url/a.h conn/url/b.h
like_a_tree conn/url/b.h conn/url/c.h
like_a_tree conn/url/c.h conn/url/a.h
is 'nor are three units that include each other' 'these include each other: a b c' "$(differs)"

# What users call is small enough to be read to the end, and has nothing for authors of transports.
is "conn/connection.h has at most 170 lines" yes \
  "$([ "$(wc -l <conn/connection.h)" -le 170 ] && echo yes || wc -l <conn/connection.h)"
is "conn/connection.h has no virtual function and no friend" '' \
  "$(sed 's|//.*||' conn/connection.h | grep -nwE 'virtual|friend')"
is "conn/connection.h includes nothing of spi, kit or core" '' \
  "$(grep -nE '#include "conn/(spi|kit|core)/' conn/connection.h)"
# The functions of Carrier, and of its bases there, that have no default.
must=$(sed -nE '/^class AECONN_API Carrier(Base|Facts)? /,/^};/p' conn/spi/carrier.h | grep -c '= 0;')
is "a carrier must implement at most 14 functions" yes \
  "$([ "$must" -gt 5 ] && [ "$must" -le 14 ] && echo yes || echo "$must")"

# --- what is installed
installed=$(make --no-print-directory -s print-public-headers)
without=''
# shellcheck disable=SC2086 # a list of files
for header in $(sed -n 's/^ *# *include "\(\(ae\|conn\)\/[^"]*\)".*/\1/p' $installed | sort -u); do
  [[ " $installed " == *" $header "* ]] || without+=" $header"
done
is 'what an installed header includes is installed' '' "$without"

# --- the sizes of classes
if ctags --version 2>/dev/null | grep -q '^Universal Ctags'; then
  said=$(tests/scripts/class_sizes.py) || said+=' (failed)'
  is 'no class has more than 40 functions or 8 bools, but the listed' '' "$(sed '$d' <<<"$said")"
  sed '$!d' <<<"$said"

  # Detects one class too large, and judges the list's rows.
  sizes() {  # FUNCTIONS BOOLS [ROW of the list]
    rm -rf "$work/sizes"
    mkdir -p "$work/sizes/ae" "$work/sizes/conn"
    {
      echo 'namespace conn { inline namespace AECONN_ABI { class Large final : public Base {'
      echo ' public:'
      for ((i = 3; i <= $1; ++i)); do echo "  int f$i() const { return $i; }"; done
      echo '  Large(); struct Inner { void f(); bool b; }; private: int g() override;'
      for ((i = 1; i <= $2; ++i)); do echo "  bool b$i = false;"; done
      echo '}; }}'
    } >"$work/sizes/conn/large.h"
    echo "${3-}" >"$work/list"
    tests/scripts/class_sizes.py "$work/sizes" "$work/list" | sed '$d'
  }
  is 'a class of 40 functions and 8 bools is well' '' "$(sizes 40 8)"
  is 'one of 41 functions is not' 'conn/large.h: Large has 41 functions and 8 bools, more than 40 or 8' "$(sizes 41 8)"
  is 'nor is one of 9 bools' 'conn/large.h: Large has 40 functions and 9 bools, more than 40 or 8' "$(sizes 40 9)"
  is 'one in the list is' '' "$(sizes 41 8 'conn/large.h | Large | 41 | 8')"
  is 'but not if it has grown' "conn/large.h: Large has 42 functions and 8 bools, more than the list's 41 and 8" \
    "$(sizes 42 8 'conn/large.h | Large | 41 | 8')"
  is 'and the list follows if it has shrunk' \
    'conn/large.h: Large has 41 functions and 8 bools, fewer than in the list: change the list' \
    "$(sizes 41 8 'conn/large.h | Large | 42 | 8')"
  is 'one that is no longer above leaves the list' \
    'conn/large.h: Large has 40 functions and 8 bools: it can leave the list' \
    "$(sizes 40 8 'conn/large.h | Large | 41 | 8')"
  is 'and so does one that is gone' 'conn/gone.h has no class Gone: it can leave the list' \
    "$(sizes 40 8 'conn/gone.h | Gone | 41 | 8')"
else
  is 'Universal Ctags is installed (tools/packages test)' yes no
fi
total
