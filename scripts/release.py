"""Make the files of a release in dist/: the package, its bills of materials, checksums and their signature.

    python scripts/release.py --dry-run              # builds in a temporary folder, and says what is missing
    python scripts/release.py --sign gpg:KEY         # or: --sign minisign:FILE, --sign none

Before it builds it looks at the version, the changelog, the tag and the work tree, and names all that is
wrong. It publishes nothing: the commands for that are printed at the end.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from package import ROOT, BuildError, build

from serve_app.version import VERSION

CHANGELOG = ROOT / "CHANGELOG.md"
UNRELEASED = "Unreleased"
SUMS = "SHA256SUMS"
NOTES = "RELEASE_NOTES.md"
SETS = ("cpu", "gpu")
SECTION = re.compile(r"^## (.+?) *$", re.MULTILINE)
HEADING = re.compile(r"\[?([0-9]+\.[0-9]+\.[0-9]+)\]? +[-–] +[0-9]{4}-[0-9]{2}-[0-9]{2}")
SIGNERS = ("gpg", "minisign")


class ReleaseError(RuntimeError):
    """There is no release; the message says why."""


def sections(changelog: str) -> dict[str, str]:
    """The text below each heading of a version, newest first."""
    parts = SECTION.split(changelog)
    return dict(zip(parts[1::2], (part.strip() for part in parts[2::2]), strict=True))


def notes_of(changelog: str, version: str) -> str | None:
    """What the changelog says of a version that has a date; ``None``: it says nothing."""
    for heading, text in sections(changelog).items():
        found = HEADING.fullmatch(heading)
        if found is not None and found[1] == version:
            return text or None
    return None


def problems(version: str, changelog: str, tags: Sequence[str], changed: Sequence[str]) -> Iterator[str]:
    """What keeps this from being a release; ``changed``: files that are not as they were committed."""
    if not re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", version):
        yield f"serve_app/version.py: {version!r} is no version such as 1.2.3"
    if notes_of(changelog, version) is None:
        yield f"CHANGELOG.md: there is no section `## {version} - YYYY-MM-DD` with text"
    if sections(changelog).get(UNRELEASED):
        yield f"CHANGELOG.md: lines are left under {UNRELEASED}"
    if f"v{version}" in tags:
        yield f"the tag v{version} is there already: raise the version"
    if changed:
        yield f"the work tree has changes: {', '.join(changed[:5])}"


def make(output: Path, signer: str) -> list[Path]:
    """All files of the release, the checksums and their signature last. Raises: ReleaseError, BuildError."""
    check_signer(signer)
    archive, wheel = build(output)
    files = [archive, wheel, *(bill(output, which, (archive, wheel)) for which in SETS)]
    notes = notes_of(CHANGELOG.read_text(encoding="utf-8"), VERSION)
    if notes is not None:
        files.append(output / NOTES)
        files[-1].write_text(f"{notes}\n", encoding="utf-8")
    sums = output / SUMS
    sums.write_text("".join(f"{digest(file)}  {file.name}\n" for file in files), encoding="utf-8")
    return [*files, sums, *signed(sums, signer)]


def bill(output: Path, which: str, packages: Sequence[Path]) -> Path:
    """The bill of materials of the tested set ``which``, which names the version and the packages' sums."""
    found = json.loads((ROOT / "requirements" / f"{which}.cdx.json").read_text(encoding="utf-8"))
    component = found["metadata"]["component"]
    component |= {"version": VERSION, "purl": f"pkg:pypi/{component['name']}@{VERSION}"}
    found["metadata"]["properties"] += [
        {"name": f"promptly:sha256:{path.name}", "value": digest(path)} for path in packages
    ]
    target = output / f"promptly_serve-{VERSION}.{which}.cdx.json"
    target.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return target


def check_signer(signer: str) -> None:
    """Before anything is built. Raises: ReleaseError."""
    program, _, key = signer.partition(":")
    if signer == "none":
        return
    if program not in SIGNERS or not key:
        raise ReleaseError(f"--sign {signer}: expected gpg:KEY, minisign:FILE or none")
    if shutil.which(program) is None:
        raise ReleaseError(f"{program} is not installed")


def signed(sums: Path, signer: str) -> list[Path]:
    """The signature's file. Raises: ReleaseError."""
    program, _, key = signer.partition(":")
    if signer == "none":
        return []
    if program == "gpg":
        target = sums.with_name(f"{sums.name}.asc")
        made = ["--local-user", key, "--armor", "--detach-sign", "--output", str(target), str(sums)]
        command = ["gpg", "--batch", "--yes", *made]
    else:
        target = sums.with_name(f"{sums.name}.minisig")
        command = ["minisign", "-S", "-s", key, "-m", str(sums), "-x", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise ReleaseError(f"{program}: {done.stderr.strip()[-500:]}")
    return [target]


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return [line for line in done.stdout.splitlines() if line.strip()]


def shown(files: Sequence[Path], signer: str) -> Iterator[str]:
    for file in files:
        yield f"{file}  {file.stat().st_size / 1e6:.2f} MB"
    yield "\nTo check them:"
    yield f"  sha256sum --check {SUMS}"
    if signer.startswith("gpg"):
        yield f"  gpg --verify {SUMS}.asc {SUMS}"
    elif signer.startswith("minisign"):
        yield f"  minisign -V -p KEY.pub -m {SUMS}"
    yield "\nTo publish them:"
    yield f"  git tag --sign v{VERSION} && git push origin v{VERSION}"
    yield "  twine upload *.whl *.tar.gz"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    parser.add_argument("--sign", metavar="WITH", help="gpg:KEY, minisign:FILE (its secret key) or none")
    parser.add_argument("--dry-run", action="store_true", help="build elsewhere; problems are only said")
    options = parser.parse_args()
    changed = [line[3:] for line in git("status", "--porcelain")]
    changelog = CHANGELOG.read_text(encoding="utf-8")
    found = list(problems(VERSION, changelog, git("tag", "--list"), changed))
    sys.stderr.writelines(f"{problem}\n" for problem in found)
    if not options.dry_run and options.sign is None:
        print("say how the checksums are signed: --sign gpg:KEY, minisign:FILE or none", file=sys.stderr)
    if not options.dry_run and (found or options.sign is None):
        return 1
    signer = options.sign or "none"
    try:
        if not options.dry_run:
            print("\n".join(shown(make(options.output, signer), signer)))
            return 0
        with tempfile.TemporaryDirectory() as scratch:
            for file in make(Path(scratch), signer):
                print(f"{file.name}  {file.stat().st_size / 1e6:.2f} MB")
    except (ReleaseError, BuildError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
