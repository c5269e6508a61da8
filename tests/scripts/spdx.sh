#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# tools/spdx: a small tree with a file of each kind, and then this tree, once its Makefile has the
# line: then all sources are meant to have it.
set -u
# shellcheck source=tests/scripts/kit
. "$(dirname "$0")/kit"
spdx=$PWD/tools/spdx here=$PWD
for tool in git python3; do
  command -v $tool >/dev/null || { echo "SKIPPED: tools/spdx: $tool is not installed"; total; exit; }
done
tag=SPDX-License-Identifier:

# ---- a tree of its own --------------------------------------------------------------------------
cd "$work" && git init -q . && mkdir LICENSES docs sub || exit 1
cp "$here/LICENSE" LICENSE && cp LICENSE LICENSES/BSD-3-Clause.txt
printf '#pragma once\nint a();\n' >a.h
printf '#include "a.h"\n' >a.cc
printf '/* For C. */\n#ifndef X\n' >c.h
printf '#include "c.h"\n' >c.c
printf '#!/usr/bin/env python3\n"""Says so."""\n' >run && chmod 755 run
printf '"""A module."""\n' >sub/module.py
printf '#!/bin/sh\r\necho\r\n' >dos.sh
printf '# shellcheck shell=bash\nx=1\n' >kit
printf 'all:\n' >Makefile
printf '<!doctype html>\n<p>\n' >page.html
printf '#!/bin/sh' >short.sh
printf '{"a": 1}\n' >list.json
printf '\xff\xd8\x00' >picture.png
printf 'text\n' >docs/a.md
printf 'int shown;\n' >docs/shown.cc
: >empty.json
ln -s nowhere link.cc
cat >REUSE.toml <<END2
# $tag BSD-3-Clause
version = 1
[[annotations]]
path = "**"
SPDX-FileCopyrightText = "2026 Somebody"
[[annotations]]
path = ["**.md", "docs/*.cc", "list.json"]
SPDX-License-Identifier = "BSD-3-Clause"
END2
git add -A
said=$("$spdx" --check)
is 'a tree without lines: status' 1 $?
is 'each file that has none is named, and no other' \
  'Makefile a.cc a.h c.c c.h dos.sh kit page.html run short.sh sub/module.py' \
  "$(sed -n 's/: no SPDX line$//p' <<<"$said" | tr '\n' ' ' | sed 's/ $//')"
is 'what cannot carry one is to be listed' 'picture.png: it cannot carry a line: name it in REUSE.toml' \
  "$(grep picture <<<"$said")"
is 'and that is all' '12 of 20 files are to be mended; `tools/spdx --fix` writes what lines it can' \
  "$(tail -n 1 <<<"$said")"
is 'nothing was changed' '#pragma once' "$(head -n 1 a.h)"

"$spdx" --fix >/dev/null
is 'what cannot be mended is a failure still' 1 $?
printf '[[annotations]]\npath = "*.png"\nSPDX-License-Identifier = "BSD-3-Clause"\n' >>REUSE.toml
is 'once it is listed nothing is left' '' "$("$spdx" --check)"
is 'a header: before #pragma once' "// $tag BSD-3-Clause|#pragma once|int a();" "$(paste -sd '|' a.h)"
is 'a header for C' "/* $tag BSD-3-Clause */|/* For C. */" "$(head -n 2 c.h | paste -sd '|')"
is 'a source in C' "/* $tag BSD-3-Clause */" "$(head -n 1 c.c)"
is 'a script: after its interpreter' "#!/usr/bin/env python3|# $tag BSD-3-Clause|\"\"\"Says so.\"\"\"" \
  "$(paste -sd '|' run)"
is 'it can be run as before' 755 "$(stat -c %a run)"
is 'a module' "# $tag BSD-3-Clause" "$(head -n 1 sub/module.py)"
is 'a script that is sourced' "# $tag BSD-3-Clause|# shellcheck shell=bash|x=1" "$(paste -sd '|' kit)"
is 'a page: after its type' "<!-- $tag BSD-3-Clause -->" "$(sed -n 2p page.html)"
is 'a script of one line that does not end' "#!/bin/sh|# $tag BSD-3-Clause" "$(paste -sd '|' short.sh)"
is 'ends of lines are kept' "#!/bin/sh^M|# $tag BSD-3-Clause^M|echo^M|" "$(cat -v dos.sh | tr '\n' '|')"
is 'what REUSE.toml lists is as it was' 'int shown;' "$(cat docs/shown.cc)"
git add -A
"$spdx" --fix >/dev/null
is 'written twice is written once' '' "$(git diff --name-only)"

sed -i 's/BSD-3-Clause/MIT/' a.cc
is 'another licence is named' 'a.cc: it says MIT, LICENSE BSD-3-Clause' "$("$spdx" --check a.cc | sed -n 1p)"
printf '[[annotations]]\npath = "gone.*"\nSPDX-License-Identifier = "BSD-3-Clause"\n' >>REUSE.toml
said=$("$spdx" --check)
is 'a path of REUSE.toml that is idle is named' 'REUSE.toml: no file answers to "gone.*"' \
  "$(grep REUSE.toml <<<"$said")"
rm LICENSES/BSD-3-Clause.txt
is 'the text of the licence is to be there' 1 "$("$spdx" --check | grep -c '^LICENSES/BSD-3-Clause.txt: ')"
echo 'path = ' >REUSE.toml
is 'a REUSE.toml that cannot be read: a sentence' 1 "$("$spdx" --check 2>&1 | grep -c '^tools/spdx: REUSE.toml: ')"

# ---- this tree ----------------------------------------------------------------------------------
cd "$here" || exit 1
if ! git rev-parse --git-dir >/dev/null 2>&1; then
  echo 'SKIPPED: this tree: it is no git repository'
elif ! head -n 3 Makefile | grep -q "$tag"; then
  echo 'SKIPPED: this tree: its sources have no lines yet (`tools/spdx --fix` writes them)'
else
  is 'every file of this tree says its licence' '' "$(tools/spdx --check)"
fi
total
