#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The Python package as its users get it, without network: a wheel is built and installed into a
# venv, used and type-checked from outside the tree; what `make install` installs is known to
# importlib.metadata as well, and `make uninstall` removes it. And what an import says if the
# library is missing, another one, or too old.
set -u
# shellcheck source=tests/clients/kit
. "$(dirname "$0")/kit"
export PYTHONDONTWRITEBYTECODE=1 PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1 SOURCE_DATE_EPOCH=1700000000
unset AECONN_LIBRARY PYTHONPATH VIRTUAL_ENV MAKEFLAGS MAKELEVEL
python=/usr/bin/python3  # the distribution's interpreter, which finds its packages
version=$(sed -n 's/^VERSION *:= *//p' Makefile)
lacks() {  # NAME PACKAGES: in CI everything is installed, so a missing package is an error
  if [ "${CI-}" = true ]; then fail "$1" "CI has all packages, but not $2: tools/packages test"
  else echo "SKIPPED: $1: $2 is not installed"; fi
}
$python -c 'import setuptools, pip, venv, wheel' 2>/dev/null ||
  { lacks 'the Python package' 'python3-pip, python3-setuptools or python3-wheel'; total; exit; }

# What takes longest runs beside the rest. redis-py of the older releases has no types.
cat >"$work/mypy.ini" <<'END2'
[mypy]
strict = True
[mypy-redis.*]
ignore_missing_imports = True
[mypy-aeconn.redis_py]
disallow_subclassing_any = False
END2
check_types() { timeout 120 $python -m mypy --config-file "$work/mypy.ini" --cache-dir "$work/mypy" "$@" 2>&1; }
types=''
if $python -c 'import mypy' 2>/dev/null; then
  MYPYPATH=bindings/python check_types -p aeconn >"$work/types" &
  types=$!
fi

# ---- the wheel -----------------------------------------------------------------------------------
wheel=build/aeconn-$version-py3-none-any.whl
rm -f "$wheel"
in_the_tree() { find bindings/python -not -path '*/__pycache__*' | sort; }
before=$(in_the_tree)
is 'make wheel has the version of the Makefile' "$wheel" "$(make --no-print-directory wheel PYTHON=$python 2>&1)"
expected=$(cd bindings/python && printf '%s\n' aeconn/*.py aeconn/py.typed | sort)
is 'all modules and py.typed are in it' "$expected" \
  "$($python -m zipfile -l "$wheel" | awk '$1 ~ /^aeconn\// {print $1}' | sort)"
inside() { $python -c 'import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    print(*(wheel.read(name).decode() for name in wheel.namelist() if name.endswith(sys.argv[2])), sep="")' "$wheel" "$1"; }
is 'and the licence' "$(cat LICENSE)" "$(inside /LICENSE)"
is 'it is for any machine' 'Root-Is-Purelib: true' "$(inside /WHEEL | grep Root)"
is 'nothing is written into the tree' "$before" "$(in_the_tree)"

copy=$work/tree  # of another version, for pip, which writes into it
mkdir -p "$copy/bindings" && cp -r bindings/python "$copy/bindings" && cp LICENSE "$copy" &&
  sed 's/^VERSION *:=.*/VERSION := 9.8.7/' Makefile >"$copy/Makefile"
venv=$work/venv
# With the pip and setuptools of the distribution: they install into the venv.
$python -m venv --without-pip --system-site-packages "$venv" >"$work/log" 2>&1 || fail 'python3 -m venv' "$(cat "$work/log")"
pip() { "$venv/bin/python" -m pip "$@"; }
pip wheel -q --no-deps --no-build-isolation -w "$work" "$copy/bindings/python" >"$work/log" 2>&1
is 'pip builds the tree of another version' aeconn-9.8.7-py3-none-any.whl "$(cd "$work" && echo *.whl)"
hook() { $python -W ignore -c "from setuptools import build_meta; build_meta.$1('$work/built')" >>"$work/log" 2>&1; }
mkdir "$work/built" && (cd "$copy/bindings/python" && hook build_sdist) && tar -xf "$work"/built/*.tar.gz -C "$work" &&
  (cd "$work/aeconn-9.8.7" && hook build_wheel)
is 'a source distribution keeps its version' 'aeconn-9.8.7-py3-none-any.whl aeconn-9.8.7.tar.gz' \
  "$(cd "$work/built" && echo *)"

# ---- installed, used from outside the tree -------------------------------------------------------
pip install -q "$wheel" >"$work/log" 2>&1 || fail 'pip install' "$(cat "$work/log")"
outside() { (cd "$work" && AECONN_LIBRARY=$build/libaeconn-c.so timeout 30 "$venv/bin/python" "$@" 2>&1); }
cat >"$work/echo.py" <<'END2'
import asyncio, importlib.metadata, sys
import aeconn

async def echo(reader, writer):
    while data := await reader.read(1000):
        writer.write(data)
    writer.close()

def ask(url):
    with aeconn.connect(url, timeout=10) as connection:
        connection.sendall(b"over tcp\n")
        return connection.makefile().readline().strip()

async def main():
    async with await aeconn.start_server(echo, "tcp://127.0.0.1:0") as server:
        return await asyncio.to_thread(ask, server.urls[0])

assert aeconn.__file__.startswith(sys.prefix), aeconn.__file__
print(importlib.metadata.version("aeconn"), aeconn.version, asyncio.run(main()))
END2
is 'it is imported, and an echo comes back' "$version $version over tcp" "$(outside echo.py)"
is 'pip lists it' "aeconn $version" "$(pip list 2>/dev/null | awk '$1 == "aeconn" {print $1, $2}')"
is 'its licence is known' 'License: BSD-3-Clause' "$(inside /METADATA | grep '^License:')"

# ---- the library's own version -------------------------------------------------------------------
says() {  # NAME SENTENCE LIBRARY: the last line of the import's failure
  is "$1" "ImportError: $2" "$(cd "$work" && AECONN_LIBRARY=$3 "$venv/bin/python" -c 'import aeconn' 2>&1 | tail -n 1)"
}
install="install it with the system's packages, or with \`make install\` and \`ldconfig\`, or name its file in AECONN_LIBRARY"
says 'no library: one sentence' "libaeconn-c cannot be loaded ($work/none.so: cannot open shared object file: \
No such file or directory): $install" "$work/none.so"
says 'another library: one sentence' 'libm.so.6 is not libaeconn-c: name another file in AECONN_LIBRARY' libm.so.6
echo 'const char* aeconn_version(void) { return "0.1.0"; }' >"$work/old.c"
echo 'const char* aeconn_error(void) { return ""; }' >>"$work/old.c"
${CC:-cc} -shared -fPIC "$work/old.c" -o "$work/old.so"
says 'an older one: one sentence' "$work/old.so is libaeconn-c 0.1.0 and has no aeconn_has_transport(): \
install $version or a newer one, or name its file in AECONN_LIBRARY" "$work/old.so"

# ---- type hints, which are found because of py.typed ---------------------------------------------
if [ -n "$types" ]; then
  wait $types
  is 'mypy --strict finds nothing in the package' 'Success: no issues found' \
    "$(sed 's/ in [0-9]* source files$//' "$work/types")"
  cat >"$work/program.py" <<'END2'
import asyncio
import aeconn

async def main() -> None:
    reader, writer = await aeconn.open_connection("tcp://127.0.0.1:1")
    writer.write(b"PING")
    line: bytes = await reader.readline()

with aeconn.connect("tcp://127.0.0.1:1", timeout=5) as connection:
    answer: bytes = connection.recv(100)
asyncio.run(main())
END2
  sed 's/answer: bytes/answer: str/; s/"PING"/"PING", 1/' "$work/program.py" >"$work/wrong.py"
  cp tests/clients/python_package.py "$work/same.py"
  said=$(cd "$work" && check_types --python-executable "$venv/bin/python" program.py same.py wrong.py)
  is 'a program that keeps to the hints passes, and hints of a socket are those of socket.socket' '' \
    "$(grep -v '^wrong.py:' <<<"$said" | grep -v '^Found 2 errors in 1 file (checked 3 source files)$')"
  has 'one that does not is told' 'wrong.py:[0-9]+: error: Too many arguments for "write"
wrong.py:[0-9]+: error: .*expression has type "bytes", variable has type "str"' "$said"
else
  lacks 'type hints' mypy
fi

# ---- make install --------------------------------------------------------------------------------
root=$work/root
install_python() { make --no-print-directory "$@" DESTDIR="$root" PYTHON=$python 2>&1; }
folder=$($python -c 'import site; print(site.getsitepackages()[0])')
mkdir -p "$root$folder/aeconn-0.0.1.dist-info" "$root$folder/aeconn_of_others-1.dist-info"
said=$(umask 077 && install_python install-python PREFIX="${folder%/lib/*}")
is 'make install puts it where the interpreter looks' "Python: $root$folder/aeconn" "$said"
is 'what is known of another version of it is gone' "aeconn-$version.dist-info aeconn_of_others-1.dist-info" \
  "$(cd "$root$folder" && echo ./*.dist-info | sed 's|\./||g')"
is 'everybody can read it' '' "$(find "$root" -path "*aeconn*" ! -path '*others*' ! -perm -004)"
# Also reads every file of RECORD and compares sizes and hashes.
cat >"$work/record.py" <<'END2'
import base64, hashlib, importlib.metadata, pathlib
found = importlib.metadata.distribution("aeconn")
recorded = {str(file): file for file in found.files}
for name, file in recorded.items():
    data = file.read_binary()
    if name.endswith("/RECORD"):
        continue
    assert file.size == len(data), name
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    assert (file.hash.mode, file.hash.value) == ("sha256", digest), name
base = pathlib.Path(found.locate_file(""))
there = {str(each.relative_to(base)) for each in base.rglob("*") if each.is_file()}
print(found.version, found.read_text("INSTALLER").strip(), sorted(there ^ set(recorded)))
END2
is 'its version and files are known' "$version make []" \
  "$(cd "$work" && PYTHONPATH=$root$folder $python record.py 2>&1)"
# Headers of the newer forms of METADATA that only the wheel has.
headers() { sed -n '1,/^$/p' | grep -vE '^(Metadata-Version|License-File|Dynamic):|^$' | sort; }
is 'with the data of the wheel' "$(inside /METADATA | headers)" "$(headers <"$root$folder/aeconn-$version.dist-info/METADATA")"
is 'and its description' "$(inside /METADATA | sed '1,/^$/d')" "$(sed '1,/^$/d' "$root$folder/aeconn-$version.dist-info/METADATA")"
# Without a tool that writes hashes there are none.
mkdir -p "$work/bin" "$work/plain/aeconn" && : >"$work/plain/aeconn/py.typed"
for tool in sh dirname rm install awk sed cat tr wc chmod; do ln -s "$(command -v $tool)" "$work/bin"; done
PATH=$work/bin tools/dist-info 1.2.3 "$work/plain" py.typed >"$work/log" 2>&1 || fail 'tools/dist-info' "$(cat "$work/log")"
has 'a system without basenc has a record without hashes' '^aeconn/py.typed,,0
aeconn-1.2.3.dist-info/INSTALLER,,5
aeconn-1.2.3.dist-info/RECORD,,$' "$(cat "$work/plain/aeconn-1.2.3.dist-info/RECORD")"
install_python uninstall PREFIX="${folder%/lib/*}" >"$work/log"
is 'make uninstall removes it' "$root$folder/aeconn_of_others-1.dist-info" "$(find "$root" -name 'aeconn*')"
is 'a PREFIX where it does not look has a folder of its own' "Python: $root/opt/a/lib/python3/dist-packages/aeconn" \
  "$(install_python install-python PREFIX=/opt/a)"
total
