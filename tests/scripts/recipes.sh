#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The recipes for Conan and vcpkg, as far as they can be tested without these tools: their steps are
# run with simulations in recipe_conan.py and recipe_vcpkg.cmake, and a program is built with each
# package, by CMake and by pkg-config.
#
#   tests/scripts/recipes.sh          make runs in this tree and uses what is built there
#   tests/scripts/recipes.sh --whole  unchanged: each set of options in a tree of its own (minutes)
set -u
# shellcheck source=tests/scripts/kit
. "$(dirname "$0")/kit"
whole=${1-} tree=$PWD
. tests/results
for tool in python3 cmake pkg-config; do
  command -v $tool >/dev/null || { echo "SKIPPED: recipes: $tool is not installed"; total; exit; }
done
export PYTHONDONTWRITEBYTECODE=1
version=$(sed -n 's/^VERSION *:= *//p' Makefile)
cxx=$(cut -d ' ' -f 1 build/flags 2>/dev/null) cxx=${cxx:-g++}

# With the compiler and flags of the existing build, otherwise everything would be rebuilt.
cat >"$work/make" <<END2
#!/usr/bin/env bash
flags=\$(sed -n 's/.*-Woverloaded-virtual -MMD -MP//p' '$tree/build/flags')
for word; do
  case \$word in
    CXX=*|AR=*|CPPFLAGS=*|CXXFLAGS=*|LDFLAGS=*|-j*) ;;
    *) words+=("\$word") ;;
  esac
done
exec make -C '$tree' --no-print-directory -j1 "\${words[@]}" CXX='$cxx' CXXFLAGS="\$flags" >/dev/null
END2
cat >"$work/record" <<'END2'
#!/usr/bin/env bash
exit 1
END2
chmod +x "$work/make" "$work/record"
[ "$whole" = --whole ] || export RECIPE_MAKE=$work/make
built_with() { stat -c %y build/flags 2>/dev/null; }
before=$(built_with)

conan() { python3 tests/scripts/recipe_conan.py "$@" 2>&1; }
vcpkg() {  # WORK FEATURES LINKAGE
  cmake -DWORK="$1" -DFEATURES="$2" -DLINKAGE="$3" -P tests/scripts/recipe_vcpkg.cmake 2>&1
}

# ---- the files -----------------------------------------------------------------------------------
for file in recipes/conan/conanfile.py recipes/conan/test_package/conanfile.py; do
  is "$file is Python" '' "$(python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' $file 2>&1)"
done
is 'vcpkg.json has the fields that vcpkg asks for, of their kinds, and no others' '' "$(python3 - "$version" <<'END2'
import json, re, sys
port = json.load(open("recipes/vcpkg/aeconn/vcpkg.json"))
kinds = {"name": str, "version": str, "description": str, "license": str, "supports": str, "dependencies": list,
         "default-features": list, "features": dict}
for field in port.keys() ^ kinds.keys():
    print("missing or unknown:", field)
for field, kind in kinds.items():
    if not isinstance(port.get(field), kind):
        print(field, "is no", kind.__name__)
name = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")
def look(dependencies):
    for one in dependencies:
        if not name.match(one if isinstance(one, str) else one["name"]) or isinstance(one, dict) and one.keys() - {"name", "host"}:
            print("no dependency:", one)
look(port["dependencies"])
for feature, content in port["features"].items():
    if not name.match(feature) or content.keys() != {"description", "dependencies"}:
        print("no feature:", feature, content)
    look(content["dependencies"])
if set(port["default-features"]) - port["features"].keys():
    print("default-features that are none")
if port["version"] != sys.argv[1]:
    print("version is", port["version"])
END2
)"
is 'each feature of the port is one that its steps know' 'rdma tls' \
  "$(sed -n 's/^foreach(feature IN ITEMS \(.*\))/\1/p' recipes/vcpkg/aeconn/portfile.cmake)"
is 'the helpers that the steps call are dependencies' '' \
  "$(for port in vcpkg-cmake-config vcpkg-cmake-get-vars; do
      call=$(tr - _ <<<"$port") && grep -q "^$call" recipes/vcpkg/aeconn/portfile.cmake &&
        ! grep -q "\"$port\"" recipes/vcpkg/aeconn/vcpkg.json && echo "$port"; done)"

# ---- options become the Makefile's --------------------------------------------------------------
says() {  # NAME WORDS... : stand in what the recipe said last
  local name=$1 word missing=''
  shift
  for word; do [[ " $(tr '\n' ' ' <<<"$said") " = *" $word "* ]] || missing+="$word "; done
  is "$name" '' "$missing"
}
plain() { RECIPE_MAKE=$work/record "$@"; }
said=$(plain conan "$work/c1" tls=False rdma=True shared=True)
says 'conan: without tls, shared' install-libraries TLS=no RDMA=yes LINKAGE=shared CONFIG=release
is 'conan: an option that there is not' 'the recipe has no option quic' "$(plain conan "$work/c2" quic=True)"
said=$(plain vcpkg "$work/v1" 'tls' dynamic)
says 'vcpkg: without rdma, shared' install-libraries TLS=yes RDMA=no LINKAGE=shared
# All variables that they pass must exist in the Makefile, and other values must be refused.
is 'the Makefile knows each of their variables' '' "$(for name in TLS RDMA LINKAGE CONFIG PREFIX; do
  grep -qE "^$name +\?=" Makefile || echo $name; done; for name in CPPFLAGS CXXFLAGS LDFLAGS LDLIBS DESTDIR CXX AR; do
  grep -qF "\$($name)" Makefile || echo $name; done)"
is 'another LINKAGE is refused in words' 1 "$(make -n LINKAGE=dynamic install-libraries 2>&1 |
  grep -c 'LINKAGE=dynamic: there is both, static, shared')"

# ---- packages, and programs with them -----------------------------------------------------------
consumer=recipes/conan/test_package
by_cmake() {  # WORK PLACE: configured, built, run
  cmake -S $consumer -B "$1/consumer" -DCMAKE_PREFIX_PATH="$2" -DCMAKE_CXX_COMPILER="$cxx" >"$1/log" 2>&1 &&
    cmake --build "$1/consumer" >>"$1/log" 2>&1 || { tail -n 5 "$1/log"; return; }
  LD_LIBRARY_PATH=$2/lib "$1/consumer/test_package"
}
by_pkg_config() {  # WORK PLACE
  # shellcheck disable=SC2046
  (export PKG_CONFIG_PATH=$2/lib/pkgconfig
   $cxx -std=c++20 $consumer/test_package.cc -o "$1/program" $(pkg-config --cflags --libs aeconn)) 2>&1 | tail -n 5
  LD_LIBRARY_PATH=$2/lib "$1/program"
}
by_hand() {  # WORK PLACE LIBRARIES...: as a generator of Conan's says it, from package_info()
  $cxx -std=c++20 -I"$2/include/aeconn" $consumer/test_package.cc -o "$1/program" -L"$2/lib" -laeconn "${@:3}" \
    -lpthread 2>&1 | tail -n 5
  LD_LIBRARY_PATH=$2/lib "$1/program"
}
transports() {  # TLS RDMA: what a package with these has
  local names='tcp unix shm vsock'
  [ "$2" = no ] || names+=' rdma'
  [ "$1" = no ] || names+=' tls tls+unix tls+shm tls+vsock'
  [ "$1$2" != yesyes ] || names+=' tls+rdma'
  tr ' ' '\n' <<<"$names" | sort | paste -sd ' '
}
sorted() { tr ' ' '\n' | sort | paste -sd ' '; }
try_conan() {  # TLS RDMA SHARED
  local at=$work/conan-$1-$2-$3 libraries=''
  said=$(conan "$at" "tls=$1" "rdma=$2" "shared=$3")
  is "conan: tls=$1 rdma=$2 shared=$3: its steps" "version: $version" "$(grep '^version: ' <<<"$said" || tail -n 3 <<<"$said")"
  [ "$1" = False ] || libraries+=' -lssl -lcrypto'
  # shellcheck disable=SC2086
  is "conan: tls=$1 rdma=$2 shared=$3: a program" \
    "$(transports $(sed 's/True/yes/g; s/False/no/g' <<<"$1 $2"))" "$(by_hand "$at" "$at/package" $libraries -lev -lfmt | sorted)"
}
try_vcpkg() {  # FEATURES LINKAGE
  local at=$work/vcpkg-${1//;/-}-$2 tls=no rdma=no
  case $1 in *tls*) tls=yes ;; esac
  case $1 in *rdma*) rdma=yes ;; esac
  said=$(vcpkg "$at" "$1" "$2")
  is "vcpkg: [$1] $2: its steps" '' "$([ -d "$at/installed" ] || tail -n 3 <<<"$said")"
  is "vcpkg: [$1] $2: licence and usage" 'copyright usage' \
    "$(cd "$at/installed/share/aeconn" 2>/dev/null && ls | grep -v cmake | paste -sd ' ')"
  is "vcpkg: [$1] $2: one kind of library" "$([ "$2" = static ] && echo a || echo so)" \
    "$(cd "$at/installed/lib" 2>/dev/null && ls | sed -n 's/^libaeconn\.\(a\|so\)$/\1/p')"
  is "vcpkg: [$1] $2: a program by CMake" "$(transports $tls $rdma)" "$(by_cmake "$at" "$at/installed" | sorted)"
  [ "$2$whole" = dynamic ] || is "vcpkg: [$1] $2: a program by pkg-config" "$(transports $tls $rdma)" "$(by_pkg_config "$at" "$at/installed" | sorted)"
}
if [ "$whole" = --whole ]; then
  try_conan True False False
  try_conan False True False
  try_conan True True True
  try_vcpkg '' static
  try_vcpkg 'rdma;tls' dynamic
else
  case $(cat build/flags 2>/dev/null) in
    *-DAECONN_TLS=1*-DAECONN_RDMA=1*-DAECONN_RDMA_LINK=0*)
      try_conan True True False
      try_vcpkg 'rdma;tls' static
      try_vcpkg 'rdma;tls' dynamic ;;
    *) echo 'SKIPPED: packages: build/ is not of TLS=yes RDMA=yes' ;;
  esac
  is 'nothing was made anew: the next test would take minutes' "$before" "$(built_with)"
fi
command -v conan >/dev/null || echo 'Conan itself is not installed: what it does was played.'
command -v vcpkg >/dev/null || echo 'vcpkg itself is not installed: what it does was played.'
[ "$whole" != --whole ] || keep_result check-recipes "$passed passed, $failed failed"
total
