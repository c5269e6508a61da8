#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# tools/release-check on a copy of the files it reads: it must name everything that is missing, and
# nothing else.
set -u
# shellcheck source=tests/scripts/kit
. "$(dirname "$0")/kit"
for tool in git python3; do
  command -v $tool >/dev/null || { echo "SKIPPED: tools/release-check: $tool is not installed"; total; exit; }
done
export PYTHONDONTWRITEBYTECODE=1
here=$PWD copy=$work/tree
mkdir -p "$copy/tests/scripts" "$copy/tests/clients" "$copy/ae" "$copy/bindings/c" "$copy/bindings/python/aeconn" && cp -r debian recipes tools Makefile LICENSE LICENSES SECURITY.md "$copy" &&
  mkdir "$copy/docs" && cp docs/packages.md "$copy/docs" && cp -r tests/install "$copy/tests" && cp tests/scripts/sbom_check.py "$copy/tests/scripts" && cp bindings/c/*.map "$copy/bindings/c" &&
  cp ae/abi.h "$copy/ae" && cp bindings/python/aeconn/_native.py "$copy/bindings/python/aeconn" &&
  cd "$copy" && git init -q . || exit 1
printf '/build/\n__pycache__/\n' >.gitignore
printf '#!/bin/sh\necho "1 passed, 0 failed"\n' >tests/clients/pages.sh && chmod +x tests/clients/pages.sh
printf 'version = 1\n[[annotations]]\npath = "**"\nSPDX-License-Identifier = "BSD-3-Clause"\n' >REUSE.toml
version=$(sed -n 's/^VERSION *:= *//p' Makefile) minor=${version%.*}
c=$(sed -n 's/^C_SOVERSION *:= *//p' Makefile)
changes() { printf '# Changelog\n\n## %s\n\n### %s\n\n- All.\n\n## [0.0.9] - 2024-02-29\n\n### Added\n\n- It.\n' "$@" >CHANGELOG.md; }
# All commits are of one day, which the changelogs have.
export GIT_AUTHOR_DATE=2025-01-02T03:00:00Z GIT_COMMITTER_DATE=2025-01-02T03:00:00Z
sed -i '1,/^ -- /s/^\( -- .*>  \).*/\1Thu, 02 Jan 2025 03:00:00 +0000/' debian/changelog
commit() { git add -A && git -c user.name=x -c user.email=x@example.com commit -qm "$1"; }
changes "[$version] - 2025-01-02" Added
commit one

# A fake build: programs that print their version.
mkdir -p build/pages build/results
for program in kv-server kv-cli conn-perf aeconn-proxy aeconn-doctor; do
  printf '#!/bin/sh\necho "%s %s"\n' $program "$version" >build/$program && chmod +x build/$program
  : >build/pages/$program && : >build/pages/$program.1
done
: >build/pages/conn.7
cat >build/aeconn-"$version".spdx.json <<'END2'
{"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": "a",
 "documentNamespace": "https://example.com/a", "creationInfo": {"created": "2025-01-02T03:00:00Z",
 "creators": ["Tool: a"]}, "packages": [{"SPDXID": "SPDXRef-a", "name": "a", "downloadLocation": "NOASSERTION",
 "filesAnalyzed": false, "licenseConcluded": "MIT", "licenseDeclared": "MIT", "copyrightText": "NONE",
 "supplier": "NOASSERTION"}], "files": [], "relationships": [{"spdxElementId": "SPDXRef-DOCUMENT",
 "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-a"}]}
END2
ran() { echo "$(git rev-parse HEAD)$2 2025-01-02T03:04:05Z $3" >"build/results/$1"; }
suites=$(sed -n 's/.*{DISTRIBUTIONS:-\([a-z ]*\)}; do try.*/\1/p' tools/deb)
all_ran() {
  ran test '' '5000 passed, 0 failed'
  ran test-ci '' '300 passed, 0 failed'
  for name in test-long check-aarch64 reproducible; do ran $name '' '20 passed, 0 failed'; done
  local suite package
  for suite in $suites; do
    mkdir -p "build/packages/$suite"
    for package in $(sed -n 's/^Package: //p' debian/control); do : >"build/packages/$suite/${package}_$version-1_amd64.deb"; done
    git rev-parse HEAD >"build/packages/$suite/commit"
  done
}
all_ran
is 'there are releases to make packages for' 'bookworm trixie sid' "$suites"

said=$(tools/release-check)
is 'a tree that has all: status' 0 $?
is 'a tree that has all: nothing is missing' "nothing is missing: git tag -a v$version -m 'aeconn $version'" "$(tail -n 1 <<<"$said")"
is 'each command is named, with its last result' \
  "make test: 5000 passed, 0 failed, 2025-01-02T03:04:05Z|make test-ci: 300 passed, 0 failed, 2025-01-02T03:04:05Z" \
  "$(grep -oE 'make test(-ci)?: .*' <<<"$said" | paste -sd '|')"
is 'what was not run is named' yes "$(grep -qx -- '-        make check-recipes: not run here' <<<"$said" && echo yes)"
is 'no earlier tag' yes "$(grep -qx 'ok       make abi: there is no earlier tag to compare with' <<<"$said" && echo yes)"

lacks() {  # NAME WORDS...: with the change that was made just now; each a line that begins with MISSING
  local name=$1 missing words
  shift
  missing=$(tools/release-check | sed -n 's/^MISSING  //p')
  is "$name: so many are missing" $# "$(grep -c . <<<"$missing")"
  for words; do is "$name: said" yes "$(grep -qF "$words" <<<"$missing" && echo yes || echo "$missing")"; done
  git checkout -q . 2>/dev/null
  git clean -qfd
}
# Changing any file also makes the tree dirty.
dirty='the tree has no changes that are not committed'
echo more >>LICENSE && cp LICENSE LICENSES/BSD-3-Clause.txt
lacks 'a change' "$dirty: commit or remove them (2 files)"
sed -i "s/^VERSION *:=.*/VERSION := 9.8.7/; s/^C_SOVERSION *:=.*/C_SOVERSION := 9.7/" Makefile
said=$(tools/release-check)
for place in "debian/changelog has $version: it should have 9.8.7" "SECURITY.md has $minor: it should have 9.8" \
  "vcpkg.json has $version: it should have 9.8.7" "bindings/c/libaeconn-c.map has $c: it should have 9.7" \
  "tools/libaeconn.map has $minor: it should have 9.8" \
  "ae/abi.h has ${minor/./_}: it should have 9_8" "_native.py has $c: it should have 9.7" \
  "debian/control has $minor: it should have 9.8" "debian/control (libaeconn-c) has $c: it should have 9.7" \
  "docs/packages.md has $minor: it should have 9.8" "docs/packages.md (libaeconn-c) has $c: it should have 9.7" \
  "debian/rules has $minor: it should have 9.8" "debian/rules (libaeconn-c) has $c: it should have 9.7" \
  'debian/libaeconn9.8.install: rename debian/libaeconn[0-9]*.install' \
  'debian/libaeconn-c9.7.install: rename debian/libaeconn-c[0-9]*.install' \
  'CHANGELOG.md: 9.8.7 is on top, with a date' 'manual pages' 'programs say 9.8.7: `make all`' 'is of this build'; do
  [ "$place" = 'manual pages' ] || is "another version: $place" 1 "$(grep '^MISSING' <<<"$said" | grep -cF "$place")"
done
git checkout -q .
changes '[Unreleased]' Added
lacks 'not dated' "$dirty" "CHANGELOG.md: $version is on top, with a date: what stands below \"[Unreleased]\" becomes"
changes "[$version] - soon" Added
lacks 'another form of a date' "$dirty" 'write "[X.Y.Z] - YYYY-MM-DD", or "[Unreleased]"' "CHANGELOG.md: $version is on top"
changes "[$version] - 2025-02-30" Added
lacks 'a day that there is not' "$dirty" 'CHANGELOG.md: dates are days that were' 'its date is that of CHANGELOG.md: it is 2025-01-02'
changes "[$version] - 2023-01-01" Added
lacks 'older than the one below' "$dirty" 'CHANGELOG.md: newest first' 'has the date of the last commit, or a later one: write ' 'its date is that of'
changes "[$version] - 2025-01-01" Added
lacks 'older than the last commit' "$dirty" ': the last commit is of 2025-01-02' 'its date is that of CHANGELOG.md: it is 2025-01-02: write 2025-01-01'
changes "[$version] - 2025-01-02" 'Known limits'
lacks 'another kind of change' "$dirty" '"Known limits" is none of Added, Changed, Deprecated, Removed, Fixed, Security'
sed -i '1s/unstable/UNRELEASED/' debian/changelog
lacks 'the package is not released' "$dirty" 'debian/changelog: its newest entry is released and dated'
printf 'version = 1\n' >REUSE.toml
printf 'int a;\n' >bindings/c/a.cc
lacks 'a file without a licence' "$dirty" 'every file says its licence: '
mv build/pages/kv-cli.1 build/gone
lacks 'a page' 'manual pages and completions of all programs: `make all`'
mv build/gone build/pages/kv-cli.1
sed -i 's/CC0-1.0/MIT/' build/aeconn-*.spdx.json
lacks 'a list of contents that is none' 'is of this build, and SPDX 2.3: `make sbom` (the document: dataLicense is "MIT")'
sed -i 's/"dataLicense": "MIT"/"dataLicense": "CC0-1.0"/' build/aeconn-*.spdx.json
printf '#!/bin/sh\necho "docs/a.md:3: there is no conn/b.cc"\nexit 1\n' >tests/clients/pages.sh
lacks 'a guide that is wrong' "$dirty" 'names in the guides are those of the tree: docs/a.md:3: there is no conn/b.cc'
for suite in $suites; do
  lib=$(ls build/packages/"$suite"/libaeconn-dev_*)
  mv "$lib" build/gone
  lacks "$suite: no package" "Debian packages for $suite: there is no libaeconn-dev $version: \`make deb DISTRIBUTIONS=$suite\`, as root"
  mv build/gone "$lib"
  rm "build/packages/$suite/commit"
  lacks "$suite: a failed test" "Debian packages for $suite: their tests failed: \`make deb"
  echo 0123456789012345678901234567890123456789+changes >"build/packages/$suite/commit"
  lacks "$suite: of another commit" "Debian packages for $suite: they are of 012345678901+changes: \`make deb"
  git rev-parse HEAD >"build/packages/$suite/commit"
done
sed -i 's/2025-01-02T03:00:00Z/2025-01-01T03:00:00Z/' build/aeconn-*.spdx.json
lacks 'a list of contents of another commit' 'the list of contents was made on this commit: `make all modules sbom`'
sed -i 's/2025-01-01T03:00:00Z/2025-01-02T03:00:00Z/' build/aeconn-*.spdx.json
rm build/results/check-aarch64
lacks 'a run that is needed' 'make check-aarch64: not run here: run it on this commit'
ran check-aarch64 '' '20 passed, 0 failed'
ran test '' '4999 passed, 1 failed'
lacks 'a test that failed' 'make test: 4999 passed, 1 failed, '
ran test '+changes' '5000 passed, 0 failed'
lacks 'a run of another tree' 'make test: 5000 passed, 0 failed, 2025-01-02T03:04:05Z, of '
ran test '' '5000 passed, 0 failed'
git tag "v$version"
is 'tagged here: status' 0 "$(tools/release-check >/dev/null; echo $?)"
echo >>Makefile && commit two && all_ran && ran abi '' "since v$version: 2 passed, 0 failed"
lacks 'tagged elsewhere' "the tag v$version is free, or of this commit: it is at $(git rev-parse --short=12 HEAD~)"
git tag -d "v$version" >/dev/null && git tag v0.0.9 HEAD~
is 'an earlier release: status' 0 "$(tools/release-check >/dev/null; echo $?)"
rm build/results/abi
lacks 'nobody looked at the interface' 'make abi: not run here: run it on this commit'
ran abi '' 'since v0.0.9: 2 passed, 0 failed' && git tag v99.0.0 HEAD~
lacks 'a later release has a tag' "$version comes after every release that has a tag: there is v99.0.0 already: raise VERSION"
cd "$here" || exit 1
total
