#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Who looks for the file to change looks into docs/architecture.md: each has a row there, and no row
# is about a file that is gone. Who uses a connection reads the first part of its class, and has soon
# read it.
set -u
# shellcheck source=tests/scripts/kit
. "$(dirname "$0")/kit"

# Names in the first column of a folder's tables: those below the heading `folder/` | is.
named() {  # FOLDER
  awk -F'|' -v heading="| \`$1/\` | is" 'index($0, heading) == 1 {on = 1; next} !/^\|/ {on = 0} on {print $2}' \
    docs/architecture.md | grep -o '`[^`]*`' | tr -d '`'
}
for folder in ae ae/detail conn conn/co conn/kit conn/detail conn/transports conn/tcp conn/rdma conn/tls \
  examples/kv_server examples/conn_perf examples/proxy examples/doctor examples/service examples/manual; do
  rows=$(named "$folder")
  is "$folder: it has a table" yes "$([ -n "$rows" ] && echo yes)"
  gone=''
  for name in $rows; do
    case $name in */) set -- "$folder/$name" ;; *) set -- "$folder/$name".[hc]* ;; esac
    [ -e "$1" ] || gone+=" $name"
  done
  is "$folder: no row is about what is gone" '' "$gone"
  is "$folder: no file has two rows" '' "$(sort <<<"$rows" | uniq -d | paste -sd ' ')"
  without=''
  for name in $(find "$folder" -maxdepth 1 \( -name '*.h' -o -name '*.cc' \) |
    sed 's#.*/##; s#\.[a-z]*$##' | sort -u); do
    grep -qxF -e "$name" <<<"$rows" || without+=" $name"
  done
  is "$folder: each file has a row" '' "$without"
done

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
  named "${file%/*}" | grep -qxF -e "$name" || unnamed+=" $file"
done <tests/scripts/changes
is "$count changes: what is to be changed stands in one file" '' "$elsewhere"
is "$count changes: docs/architecture.md names the file" '' "$unnamed"

# From the class to what only those need who write a transport.
lines=$(sed -n '/^class AECONN_API Connection /,/^ protected:$/p' conn/connection.h | wc -l)
is "conn/connection.h: the user's part is there and below 170 lines" yes \
  "$([ "$lines" -gt 100 ] && [ "$lines" -lt 170 ] && echo yes || echo "$lines lines")"
total
