#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Who looks for the file to change looks into docs/architecture.md: each has a row there, and no row
# is about a file that is gone. Who uses a connection reads the first part of its class, and has soon
# read it.
set -u
# shellcheck source=tests/scripts/kit
. "$(dirname "$0")/kit"

# Names in the first column below a heading of the folder: `a`, `b*`, c/.
named() {  # FOLDER
  awk -F'|' -v heading="| \`$1/\` | is |" 'index($0, heading) == 1 {on = 1; next} !/^\|/ {on = 0} on {print $2}' \
    docs/architecture.md | grep -o '`[^`]*`' | tr -d '`'
}
for folder in ae ae/detail conn conn/kit conn/detail conn/tcp conn/rdma conn/tls examples; do
  rows=$(named "$folder")
  is "$folder: it has a table" yes "$([ -n "$rows" ] && echo yes)"
  gone='' place=''
  for name in $rows; do
    # In examples/ the folder is named once for a row.
    if [ "$folder" = examples ]; then case $name in */*) place=${name%/*} ;; *) name=$place/$name ;; esac; fi
    # shellcheck disable=SC2086
    case $name in */) set -- "$folder/$name" ;; *) set -- $folder/$name.[hc]*; esac
    [ -e "$1" ] || gone+=" $name"
  done
  is "$folder: no row is about what is gone" '' "$gone"
  [ "$folder" != examples ] || continue
  without=''
  for name in $(printf '%s\n' "$folder"/*.h "$folder"/*.cc | sed 's#.*/##; s#\.[a-z]*$##' | sort -u); do
    grep -qxF "$name" <<<"$rows" || without+=" $name"
  done
  is "$folder: each file has a row" '' "$without"
done

# In examples/ rows name several by a pattern.
without=''
place='' rows=()
for name in $(named examples); do
  case $name in */*) place=${name%/*} ;; *) name=$place/$name ;; esac
  case $name in */) rows+=("$name*") ;; *) rows+=("$name.h" "$name.cc") ;; esac
done
has_row() {  # FILE below examples/
  # shellcheck disable=SC2053
  for row in "${rows[@]}"; do [[ ${1#examples/} == $row ]] && return; done
  return 1
}
for file in examples/*/*.h examples/*/*.cc; do has_row "$file" || without+=" $file"; done
is 'examples: each file has a row' '' "$without"

# One place for each default and each sentence.
count=0 elsewhere='' unnamed=''
while IFS='|' read -r file what request; do
  case $file in '#'*) continue ;; esac
  file=${file% } what=${what# } what=${what% } request=${request# }
  count=$((count + 1))
  places=$(grep -rnF --include='*.h' --include='*.cc' --include='*.c' -e "$what" ae conn c adapters examples |
    grep -vE '^[^:]*:[0-9]+: *//' | cut -d: -f1 | sort -u | paste -sd ' ')
  [ "$places" = "$file" ] || elsewhere+=" [$request: $places, not $file]"
  name=${file##*/} name=${name%.*}
  case $file in
    examples/*) has_row "$file" ;;
    *) grep -qE "[\`/]$name[\`.]" docs/architecture.md ;;
  esac || unnamed+=" $file"
done <tests/scripts/changes
is "$count changes: what is to be changed stands in one file" '' "$elsewhere"
is "$count changes: docs/architecture.md names the file" '' "$unnamed"

# From the class to what only those need who write a transport.
lines=$(sed -n '/^class AECONN_API Connection /,/^ protected:$/p' conn/connection.h | wc -l)
is "conn/connection.h: the user's part is there and below 170 lines" yes \
  "$([ "$lines" -gt 100 ] && [ "$lines" -lt 170 ] && echo yes || echo "$lines lines")"
total
