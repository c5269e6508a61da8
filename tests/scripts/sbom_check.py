# SPDX-License-Identifier: BSD-3-Clause
"""sbom_check.py FILE...: checks for complete and correct SPDX 2.3; prints a line per problem, of
several files with the name of the file before it."""

import functools
import hashlib
import json
import re
import sys

RELATIONS = set(
    """AMENDS ANCESTOR_OF BUILD_DEPENDENCY_OF BUILD_TOOL_OF CONTAINED_BY CONTAINS COPY_OF
DATA_FILE_OF DEPENDENCY_MANIFEST_OF DEPENDENCY_OF DEPENDS_ON DESCENDANT_OF DESCRIBED_BY DESCRIBES
DEV_DEPENDENCY_OF DEV_TOOL_OF DISTRIBUTION_ARTIFACT DOCUMENTATION_OF DYNAMIC_LINK EXAMPLE_OF
EXPANDED_FROM_ARCHIVE FILE_ADDED FILE_DELETED FILE_MODIFIED GENERATED_FROM GENERATES
HAS_PREREQUISITE METAFILE_OF OPTIONAL_COMPONENT_OF OPTIONAL_DEPENDENCY_OF OTHER PACKAGE_OF
PATCH_APPLIED PATCH_FOR PREREQUISITE_FOR PROVIDED_DEPENDENCY_OF REQUIREMENT_DESCRIPTION_FOR
RUNTIME_DEPENDENCY_OF SPECIFICATION_FOR STATIC_LINK TEST_CASE_OF TEST_DEPENDENCY_OF TEST_OF
TEST_TOOL_OF VARIANT_OF""".split()
)
FILE_TYPES = set(
    "OTHER DOCUMENTATION IMAGE VIDEO ARCHIVE SPDX APPLICATION SOURCE BINARY TEXT AUDIO".split()
)
DIGITS = {"SHA1": 40, "SHA256": 64}
NAME = re.compile(r"SPDXRef-[A-Za-z0-9.-]+\Z")
TERM = r"\(*[A-Za-z0-9.-]+\+?(?: WITH [A-Za-z0-9.-]+)?\)*"
LICENCE = re.compile(rf"(?:NONE|NOASSERTION|{TERM}(?: (?:AND|OR) {TERM})*)\Z")
DOCUMENT = {
    "spdxVersion": r"SPDX-2\.3",
    "dataLicense": r"CC0-1\.0",
    "SPDXID": "SPDXRef-DOCUMENT",
    "name": ".+",
    "documentNamespace": r"[a-z][a-z0-9+.-]*://[^#\s]+",
    "creationInfo": None,
    "packages": None,
    "files": None,
    "relationships": None,
}
PACKAGE = {
    "SPDXID": NAME.pattern,
    "name": ".+",
    "downloadLocation": r"NOASSERTION|NONE|[a-z+]+://\S+",
    "filesAnalyzed": None,
    "licenseConcluded": LICENCE.pattern,
    "licenseDeclared": LICENCE.pattern,
    "copyrightText": "(?s).+",
    "supplier": r"NOASSERTION|(Person|Organization): .+",
}
MORE_OF_PACKAGES = {
    "versionInfo",
    "summary",
    "originator",
    "packageVerificationCode",
    "sourceInfo",
    "licenseInfoFromFiles",
    "externalRefs",
}
FILE = {
    "SPDXID": NAME.pattern,
    "fileName": r"\./[^/].*",
    "fileTypes": None,
    "checksums": None,
    "licenseConcluded": LICENCE.pattern,
    "licenseInfoInFiles": None,
    "copyrightText": "(?s).+",
}
RELATION = {
    "spdxElementId": NAME.pattern,
    "relationshipType": ".+",
    "relatedSpdxElement": NAME.pattern,
}
wrong = []


def shape(where, value, wanted, more=()):
    """All required fields in their form, and no fields unknown to SPDX."""
    if not isinstance(value, dict):
        wrong.append(f"{where} is no object")
        return False
    for field in wanted.keys() - value.keys():
        wrong.append(f"{where} has no {field}")
    for field in value.keys() - wanted.keys() - set(more):
        wrong.append(f"{where}: there is no field {field}")
    for field, form in wanted.items():
        if form and field in value and not re.fullmatch(form, str(value[field])):
            wrong.append(f"{where}: {field} is \"{value[field]}\"")
    return wanted.keys() <= value.keys()


def look_at_packages(packages, contained):
    for package in packages:
        where = package.get("SPDXID", "a package")
        if not shape(where, package, PACKAGE, MORE_OF_PACKAGES):
            continue
        if not package.get("versionInfo", "-"):
            wrong.append(f"{where}: versionInfo is empty")
        for reference in package.get("externalRefs", []):
            if (
                reference["referenceCategory"] != "PACKAGE-MANAGER"
                or reference["referenceType"] != "purl"
                or not re.fullmatch(
                    r"pkg:[a-z]+/[\w.%+/-]+@[\w.%~+-]+(\?arch=\w+)?", reference["referenceLocator"]
                )
            ):
                wrong.append(f"{where}: {reference} is no purl")
        code = package.get("packageVerificationCode", {}).get("packageVerificationCodeValue")
        if package["filesAnalyzed"] is not True:
            if code or package["filesAnalyzed"] is not False or contained.get(where):
                wrong.append(
                    f"{where}: files that were not analysed have no code and are not contained"
                )
            continue
        sums = sorted(
            digest["checksumValue"]
            for file in contained.get(where, [])
            for digest in file["checksums"]
            if digest["algorithm"] == "SHA1"
        )
        if code != hashlib.sha1("".join(sums).encode()).hexdigest():
            wrong.append(f"{where}: its verification code is not that of its files")
        if package.get("licenseInfoFromFiles") != sorted(
            {licence for file in contained.get(where, []) for licence in file["licenseInfoInFiles"]}
        ):
            wrong.append(f"{where}: licenseInfoFromFiles is not what its files say")


@functools.cache
def digest_of(name, kind):
    with open(name, "rb") as content:
        return hashlib.file_digest(content, kind).hexdigest()


def look_at_files(files):
    for file in files:
        where = file.get("SPDXID", "a file")
        if not shape(where, file, FILE):
            continue
        if not file["fileTypes"] or set(file["fileTypes"]) - FILE_TYPES:
            wrong.append(f"{where}: fileTypes is {file['fileTypes']}")
        if not file["licenseInfoInFiles"] or not all(
            map(LICENCE.match, file["licenseInfoInFiles"])
        ):
            wrong.append(f"{where}: licenseInfoInFiles is {file['licenseInfoInFiles']}")
        digests = {digest["algorithm"]: digest["checksumValue"] for digest in file["checksums"]}
        if "SHA1" not in digests:
            wrong.append(f"{where} has no SHA1")
        for kind, value in digests.items():
            if not re.fullmatch(r"[0-9a-f]{%d}" % DIGITS.get(kind, 0), value):
                wrong.append(f"{where}: {kind} is \"{value}\"")
                continue
            try:
                if digest_of(file["fileName"], kind) != value:
                    wrong.append(f"{where}: {kind} is not that of {file['fileName']}")
            except OSError as error:
                wrong.append(f"{where}: {file['fileName']}: {error.strerror}")


def look_at(path):
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    if shape("the document", document, DOCUMENT):
        creation = document["creationInfo"]
        if shape(
            "creationInfo",
            creation,
            {"created": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "creators": None},
        ):
            if not creation["creators"] or not all(
                re.fullmatch(r"(Person|Organization|Tool): .+", creator)
                for creator in creation["creators"]
            ):
                wrong.append(f"creators are {creation['creators']}")
        packages, files = document["packages"], document["files"]
        names = [element.get("SPDXID") for element in packages + files] + ["SPDXRef-DOCUMENT"]
        wrong.extend(
            f"{name} is there twice"
            for name in sorted({name for name in names if names.count(name) > 1}, key=str)
        )
        by_name = {file.get("SPDXID"): file for file in files}
        contained, related, described = {}, set(), 0
        for relation in document["relationships"]:
            if not shape("a relationship", relation, RELATION):
                continue
            one, kind, other = (relation[field] for field in RELATION)
            if kind not in RELATIONS:
                wrong.append(f"there is no relationship {kind}")
            wrong.extend(
                f"{kind} speaks of {name}, which is not there"
                for name in (one, other)
                if name not in names
            )
            if kind == "CONTAINS" and other in by_name:
                contained.setdefault(one, []).append(by_name[other])
            described += (one, kind) == ("SPDXRef-DOCUMENT", "DESCRIBES")
            related |= {one, other}
        if not described:
            wrong.append("the document describes nothing")
        wrong.extend(f"nothing is said of {name}" for name in sorted(set(names) - related, key=str))
        look_at_files(files)
        look_at_packages(packages, contained)


def main():
    bad = 0
    for path in sys.argv[1:]:
        wrong.clear()
        look_at(path)
        for line in wrong:
            print(f"{path}: {line}" if len(sys.argv) > 2 else line)
        bad += len(wrong)
    return 1 if bad else 0


sys.exit(main())
