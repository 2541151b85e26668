"""Build the package: a source archive and a wheel in dist/.

    python scripts/package.py [--output dist]

Only files that git tracks go in, so what else lies in the checkout (keys, your own config files) stays out.
The wheel is built from the unpacked source archive, which shows that the archive is complete. It needs no
network: the build uses the installed setuptools.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"


PARTS = (
    "serve_app",
    "deployments",
    "config",
    "pyproject.toml",
    "setup.py",
    "MANIFEST.in",
    "README.md",
    "CHANGELOG.md",
    "LICENSE",
)


class BuildError(RuntimeError):
    """The package cannot be built; the message is the tool's own."""


def build(output: Path) -> list[Path]:
    """The source archive and the wheel. Raises: BuildError."""
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        tracked = Path(scratch) / "tracked"
        copy_tracked(tracked)
        archive = output / run_build("build_sdist", tracked, output)
        with tarfile.open(archive) as stream:
            stream.extraction_filter = getattr(tarfile, "data_filter", None)  # not before Python 3.11.4
            stream.extractall(scratch)
        unpacked = Path(scratch) / archive.name.removesuffix(".tar.gz")
        return [archive, output / run_build("build_wheel", unpacked, output)]


def copy_tracked(target: Path) -> None:
    """What git tracks, as it is in the work tree."""
    for name in tracked_files():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name)


def tracked_files() -> list[str]:
    """Names below the checkout. Where git does not know the folder (an unpacked archive), all files of the
    package's parts."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    found = (path for part in PARTS for path in ((ROOT / part), *(ROOT / part).rglob("*")))
    return [str(path.relative_to(ROOT)) for path in found if path.is_file() and path.suffix != ".pyc"]


def run_build(what: str, folder: Path, output: Path) -> str:
    """The file's name."""
    return checked([sys.executable, "-c", BUILD, what, str(output.resolve())], folder).splitlines()[-1]


def checked(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{command[0]}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    try:
        files = build(parser.parse_args().output)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    for file in files:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        print(f"{file}  {file.stat().st_size / 1e6:.1f} MB  sha256:{digest}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
