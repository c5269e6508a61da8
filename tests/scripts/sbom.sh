#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# `make sbom`: its output must be valid SPDX 2.3, describe what was built, and be the same twice.
# First, the check itself must detect each kind of mistake.
set -u
# shellcheck source=tests/scripts/kit
. "$(dirname "$0")/kit"
for tool in python3 readelf; do
  command -v $tool >/dev/null || { echo "SKIPPED: make sbom: $tool is not installed"; total; exit; }
done
check() { python3 -B tests/scripts/sbom_check.py "$@" 2>&1; }
# With the flags of the existing build, otherwise it would be rebuilt.
flags=$(sed -n 's/.*-Woverloaded-virtual -MMD -MP//p' build/flags)
cxx=$(cut -d ' ' -f 1 build/flags)
sbom() { env "$@" make --no-print-directory -j1 CXX="$cxx" CXXFLAGS="$flags" SBOM="$work/sbom.json" sbom 2>&1; }

built_with() { stat -c %y build/flags; }
before=$(built_with)
epoch=1700000000
said=$(sbom SOURCE_DATE_EPOCH=$epoch)
is 'make sbom' 0 $?
is 'it says what it has' 1 "$(grep -cE '^.*sbom.json: [0-9]+ files of ours, [0-9]+ built, [0-9]+ packages of others$' <<<"$said")"
is 'it is SPDX 2.3, whole and true' '' "$(check "$work/sbom.json")"
cp "$work/sbom.json" "$work/first.json"
sbom SOURCE_DATE_EPOCH=$epoch TZ=Asia/Tokyo PYTHONHASHSEED=7 >/dev/null
is 'another time has the same bytes' same "$(cmp "$work/first.json" "$work/sbom.json" && echo same)"
is 'the date is SOURCE_DATE_EPOCH' '2023-11-14T22:13:20Z' \
  "$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["creationInfo"]["created"])' "$work/sbom.json")"
said=$(SOURCE_DATE_EPOCH=yesterday tools/sbom --version 1 --out "$work/none.json" --objects build/obj/ae/core/loops.o \
  --files bindings/c/aeconn.h --artefacts build/libaeconn.a 2>&1)
is 'no date: a sentence that says what to do' 1 \
  "$(grep -c 'SOURCE_DATE_EPOCH is "yesterday": give seconds since 1970' <<<"$said")"

is 'nothing was made anew: that takes minutes' "$before" "$(built_with)"

# The sources of each built program must be among this project's files.
without=''
for main in examples/*/*_main.cc programs/*/*_main.cc; do
  grep -qF "\"./$main\"" "$work/first.json" || without+=" $main"
done
is 'the source of each program is in it' '' "$without"

# Its links must agree with the libraries' own information.
cat >"$work/links.py" <<'END2'
import json, re, subprocess, sys
document = json.load(open(sys.argv[1]))
names = {one["SPDXID"]: one.get("fileName", one.get("name")) for one in document["files"] + document["packages"]}
links = {}
for relation in document["relationships"]:
    if relation["relationshipType"] == "DYNAMIC_LINK":
        links.setdefault(names[relation["spdxElementId"]], set()).add(names[relation["relatedSpdxElement"]])
if "loaded" in sys.argv:
    print(" ".join(name for name in (names[relation["spdxElementId"]] for relation in document["relationships"]
                   if relation["relationshipType"] == "OPTIONAL_DEPENDENCY_OF"
                   and names[relation["relatedSpdxElement"]] == "./build/kv-server") if "verbs" in name))
elif "owners" in sys.argv:
    for name in sorted(links["./build/kv-server"]):
        print(name)
else:
    wanted = len(set(re.findall(r"NEEDED.*\[(.*)\]", subprocess.run(["readelf", "-d", "build/kv-server"], text=True,
                                                                     capture_output=True).stdout)))
    # libssl and libcrypto, libc and libm are of one package each.
    print("fewer" if 0 < len(links["./build/kv-server"]) <= wanted else links)
END2
loaded=''
case $(cat build/flags) in
  *-DAECONN_RDMA=1*-DAECONN_RDMA_LINK=0*)
    loaded=$(dpkg-query -S "$(realpath "$(g++ -print-file-name=libibverbs.so.1)")" | cut -d: -f1) ;;
esac
is 'what kv-server loads is an optional dependency' "$loaded" \
  "$(python3 -B "$work/links.py" "$work/first.json" loaded)"
is 'kv-server links with what it needs' fewer "$(python3 -B "$work/links.py" "$work/first.json")"
if command -v dpkg-query >/dev/null; then
  owners=$(python3 -B "$work/links.py" "$work/first.json" owners)
  for library in libev4 libc6; do  # Debian 13 adds t64 to some names
    library=$(grep -xE "$library(t64)?" <<<"$owners" || echo "no $library")
    is "$library is named with its version here" 1 "$(grep -cF "\"versionInfo\": \"$(dpkg-query -W -f '${Version}' "$library")\"" \
      <(grep -A 3 "\"name\": \"$library\"" "$work/first.json"))"
  done
fi

# ---- the check can fail -------------------------------------------------------------------------
names=() complaints=()
wrong() {  # NAME PYTHON COMPLAINT: after a change of the document `d`
  names+=("$1") complaints+=("$3")
  python3 -c "import json, sys
d = json.load(open(sys.argv[1])); p = d['packages']; f = d['files']; r = d['relationships']
$2
json.dump(d, open(sys.argv[2], 'w'))" "$work/first.json" "$work/wrong${#names[@]}.json"
}
wrong 'a field is missing' 'del d["documentNamespace"]' '^the document has no documentNamespace$'
wrong 'a field that there is not' 'p[0]["license"] = "MIT"' 'there is no field license$'
wrong 'a package without a place' 'del p[0]["downloadLocation"]' 'has no downloadLocation$'
wrong 'an identifier twice' 'f[1]["SPDXID"] = f[0]["SPDXID"]' 'is there twice$'
wrong 'an identifier with a slash' 'p[0]["SPDXID"] = "SPDXRef-a/b"' 'SPDXID is "SPDXRef-a/b"$'
wrong 'a relation to nobody' 'r[0]["relatedSpdxElement"] = "SPDXRef-nobody"' 'speaks of SPDXRef-nobody, which is not there$'
wrong 'a relation of no kind' 'r[0]["relationshipType"] = "LIKES"' 'there is no relationship LIKES$'
wrong 'a file of another content' 'f[0]["checksums"][0]["checksumValue"] = "0" * 40' 'is not that of '
wrong 'a file left out' 'del f[0]' 'which is not there$'
wrong 'a date of another form' 'd["creationInfo"]["created"] = "today"' 'created is "today"$'
wrong 'no licence' 'p[0]["licenseDeclared"] = "see LICENSE"' 'licenseDeclared is "see LICENSE"$'
wrong 'another verification code' 'p[0]["packageVerificationCode"]["packageVerificationCodeValue"] = "0" * 40' \
  'verification code is not that of its files$'
# In one run, since each reads all files.
check "$work"/wrong*.json >"$work/said"
for i in "${!names[@]}"; do
  is "noticed: ${names[i]}" 1 "$(sed -n "s|^$work/wrong$((i + 1)).json: ||p" "$work/said" | grep -cE -m 1 "${complaints[i]}")"
done
total
