#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# tools/abi on a library of a few lines: its output and exit status after each kind of change.
set -u
# shellcheck source=tests/scripts/kit
. "$(dirname "$0")/kit"
for tool in abidiff git g++ readelf; do
  command -v $tool >/dev/null || { echo "SKIPPED: tools/abi: $tool is not installed (\`tools/packages abi\`)"; total; exit; }
done
mkdir -p "$work/tree/tools" "$work/tree/tests" "$work/tree/ae" && cp tools/abi "$work/tree/tools/" &&
  cp tests/results "$work/tree/tests" && cd "$work/tree" && git init -q . || exit 1
cat >Makefile <<'END2'
VERSION := 0.2.0
build/libaeconn.so.%: ae/a.cc ae/a.h
	mkdir -p build && g++ -g -shared -fPIC -I. -Wl,-soname,libaeconn.so.$(basename $(VERSION)) -o $@ ae/a.cc
END2
printf 'struct Place { int port; };\nint open(Place*);\nint close(int);\n' >ae/a.h
printf '#include "ae/a.h"\nint open(Place* p) { return p->port; }\nint close(int a) { return a; }\n' >ae/a.cc
printf '/build/\n' >.gitignore
git add -A
said=$(tools/abi 2>&1)
is 'no tag: status' 2 $?
is 'no tag: a sentence' 'make abi: there is no tag to compare with: name a commit, as in `make abi BASE=HEAD~10`' "$said"
git -c user.name=x -c user.email=x@example.com commit -qm one && git tag v0.2.0
is 'a commit that there is not' 'make abi: git knows no commit "v9"' "$(BASE=v9 tools/abi 2>&1)"
try() {  # NAME STATUS WORDS
  rm -rf build
  said=$(tools/abi 2>&1)
  is "$1: status" "$2" $?
  is "$1: said" 1 "$(grep -cF -m 1 "$3" <<<"$said")"
}
try 'nothing changed' 0 'libaeconn.so: 0 removed, 0 changed, 0 added since v0.2.0: programs that use it keep working'
echo 'int more() { return 1; }' >>ae/a.cc && echo 'int more();' >>ae/a.h
kept() { cut -d ' ' -f 1,3- build/results/abi; }
is 'the result is kept with its commit' "$(git rev-parse HEAD) since v0.2.0: 1 passed, 0 failed" "$(kept)"
rm -rf build && BASE=HEAD tools/abi >/dev/null 2>&1
is 'a comparison with another commit is not kept' no "$([ -e build/results/abi ] || echo no)"
try 'a function more' 0 '0 removed, 0 changed, 1 added since v0.2.0: programs that use it keep working'
sed -i 's/int port;/long flags; int port;/' ae/a.h
try 'a type of another layout' 1 'and its soname is still libaeconn.so.0.2: programs that use it would break'
git checkout -q . && sed -i '/close/d' ae/a.h ae/a.cc
try 'a function less' 1 'libaeconn.so: 1 removed, 0 changed, 0 added since v0.2.0, and its soname is still'
is 'a function less: the kept result' "$(git rev-parse HEAD)+changes since v0.2.0: 0 passed, 1 failed" "$(kept)"
is 'a function less: it is named' 1 "$(grep -c 'close(int)' <<<"$said")"
sed -i 's/0\.2\.0/0.3.0/' Makefile
try 'a function less, under a new soname' 0 'libaeconn.so: 1 removed, 0 added since v0.2.0; its soname is libaeconn.so.0.3, not libaeconn.so.0.2: both'
is 'a function less, under a new soname: it is named' '  close(int)' "$(grep '^  ' <<<"$said")"
echo 'this is no C++' >>ae/a.cc
try 'what cannot be built' 2 'make abi: this tree could not be built'
total
