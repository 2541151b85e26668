"""Write the lock files in requirements/: every package of the tested sets, its version and its hashes.

    python scripts/lock.py                 both sets; versions stay unless pyproject.toml needs others
    python scripts/lock.py --installed cpu the versions that are installed here where the set allows them
    python scripts/lock.py --upgrade       the newest versions that pyproject.toml allows
    python scripts/lock.py --check cpu     exit status 0: the lock fits here
    python scripts/lock.py --install cpu   install the set beside this Python

A set is the project with one of the extras `cpu` and `gpu`, and `models` and `dev`. uv resolves and installs
it, from a temporary folder and the indexes that pip is configured with; the files name no index. Only the
standard library is needed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "requirements"
UV = "uv==0.13.9"
INSTALLER = "uv"
INSTALLER_HEAD = """\
# What installs the tested sets (scripts/lock.py --install). Made by scripts/lock.py.
"""
SETS = ("cpu", "gpu")
EXTRAS = ("models", "dev")
BUILT_HERE = "suffix"
BUILT_HERE_HEAD = """\
# What scripts/setup_env.sh builds from source, whose own requirements it leaves out. Made by scripts/lock.py.
"""
PYTHON = "3.11"
PLATFORM = "x86_64-unknown-linux-gnu"
MADE_FOR = f"CPython {PYTHON}, Linux x86_64"
ENTRY = re.compile(r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[^\s;\\]+)", re.MULTILINE)
TIED = re.compile(r"^(torch|vllm)(-|$)")
"""Packages whose builds differ between the sets: the installed version of one set is no hint for the
other."""

LEFT_OUT = {"cpu": ("torchaudio", "torchcodec", "torchvision")}
"""Package indexes have torch's companions as builds for CUDA, which do not import beside a CPU build of torch
and break transformers. Nothing here needs them."""

TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"

UNHASHED_REASON = """\
# Without hashes: a version with a local part (+cpu) is a build, and package indexes carry builds of their own
# of it with hashes of their own. Which file it is, is as good as the index that it comes from.
"""


class LockError(RuntimeError):
    """The set cannot be locked."""


def lock_path(which: str) -> Path:
    return FOLDER / f"{which}.txt"


def unhashed_path(which: str) -> Path:
    """The file of packages that are installed separately, without hashes; not every set has one."""
    return FOLDER / f"{which}-unhashed.txt"


def project() -> dict[str, Any]:
    parsed: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return parsed


def wanted(which: str) -> str:
    """A digest of the requirements in pyproject.toml."""
    asks = project()
    extras = asks["optional-dependencies"]
    asked = [asks["requires-python"], asks["dependencies"], *(extras[name] for name in (which, *EXTRAS))]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()


def head(which: str) -> str:
    return (
        f"# The tested set `{which}` for {MADE_FOR}. Made by scripts/lock.py; do not edit.\n"
        f"# of pyproject.toml: {wanted(which)}\n"
    )


def misfit(which: str) -> str | None:
    """Why the lock cannot be used here; ``None`` if it can."""
    path = lock_path(which)
    if not path.is_file():
        return f"there is no {path.relative_to(ROOT)}"
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return f"it is made for {MADE_FOR}"
    if ".".join(platform.python_version_tuple()[:2]) != PYTHON:
        return f"it is made for {MADE_FOR}, this is Python {platform.python_version()}"
    if not path.read_text(encoding="utf-8").startswith(head(which)):
        return "pyproject.toml has changed since (run scripts/lock.py again)"
    return None


def blocks(compiled: str) -> list[str]:
    """What uv wrote, by entry: a package with its hashes."""
    return re.split(r"\n(?=[A-Za-z0-9])", compiled.strip())


def split(compiled: str) -> tuple[str, str]:
    """The entries with hashes, and those whose version has a local part, without."""
    hashed, unhashed = [], []
    for block in blocks(compiled):
        entry = ENTRY.match(block)
        if entry is None:
            raise LockError(f"uv wrote what is no entry: {block[:200]!r}")
        if "+" in entry["version"]:
            unhashed.append(f"{entry[0]}\n")
        else:
            hashed.append(f"{block.rstrip()}\n")
    return "".join(hashed), "".join(unhashed)


def without(compiled: str, names: Sequence[str]) -> str:
    """What uv wrote, without the entries of these packages."""
    return "\n".join(block for block in blocks(compiled) if block.partition("==")[0] not in names)


def packages(which: str) -> list[tuple[str, str]]:
    """Name and version of every package of a set, by name."""
    files = [path for path in (lock_path(which), unhashed_path(which)) if path.is_file()]
    found = (ENTRY.finditer(path.read_text(encoding="utf-8")) for path in files)
    return sorted((entry["name"], entry["version"]) for entries in found for entry in entries)


def installed() -> Iterator[str]:
    for each in distributions():
        if not TIED.match(each.name):
            yield f"{each.name}=={each.version}\n"


def indexes(pip: Sequence[str], *, local_wheels: bool) -> dict[str, str]:
    """pip's configuration in the form that uv reads. ``local_wheels``: a folder of wheels, which may hold CPU
    builds that a GPU set must not get.

    uv takes the hashes of a version from one index only, the first that has it, and looks at extra indexes
    first. One of these may hold a single file of a version (of soundfile the one without its library), so
    the main index goes before them."""

    def asked(option: str) -> str:
        return os.environ.get("PIP_" + option.upper().replace("-", "_")) or setting(pip, option)

    main = asked("index-url") or default_index(pip)
    found = {
        "UV_INDEX": " ".join([main, *asked("extra-index-url").split()]),
        "UV_DEFAULT_INDEX": main,
        "SSL_CERT_FILE": asked("cert"),
        "UV_FIND_LINKS": asked("find-links") if local_wheels else "",
        "UV_INDEX_STRATEGY": "unsafe-best-match",  # like pip, look in all indexes
    }
    return {variable: value for variable, value in found.items() if value}


def default_index(pip: Sequence[str]) -> str:
    """The index that pip asks where none is configured. No public name of pip tells it; `pip._internal` has
    had this one since pip 10."""
    ask = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    done = subprocess.run([pip[0], "-c", ask], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def setting(pip: Sequence[str], option: str) -> str:
    done = subprocess.run(
        [*pip, "config", "get", f"global.{option}"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def resolve(which: str, folder: Path, prefer: str, upgrade: bool) -> str:
    """The set as uv resolves it; versions in ``prefer`` stay where possible."""
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    output = folder / f"{which}.txt"
    output.write_text(prefer, encoding="utf-8")
    if which not in SETS:
        asked = folder / f"{which}.in"
        alone = [UV] if which == INSTALLER else project()["optional-dependencies"][which]
        asked.write_text("\n".join(alone), encoding="utf-8")
        arguments = [str(asked), "--no-deps"]
    else:
        extras = [argument for extra in (which, *EXTRAS) for argument in ("--extra", extra)]
        arguments = ["pyproject.toml", *extras]
    command = [str(folder / "bin" / "uv"), "pip", "compile", *arguments]
    command += ["--python-version", PYTHON, "--python-platform", PLATFORM, "--output-file", str(output)]
    command += ["--generate-hashes", "--no-header", "--no-annotate", "--quiet", *(["--upgrade"] * upgrade)]
    environment = os.environ | indexes(pip, local_wheels=which == "cpu")
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LockError(f"{which}: {done.stderr.strip()[-2000:]}")
    return output.read_text(encoding="utf-8")


def write(which: str, compiled: str) -> None:
    hashed, unhashed = split(compiled)
    if "://" in hashed:
        raise LockError(f"{which}: an entry names a URL")
    FOLDER.mkdir(exist_ok=True)
    lock_path(which).write_text(head(which) + hashed, encoding="utf-8")
    unhashed_path(which).unlink(missing_ok=True)
    if unhashed:
        unhashed_path(which).write_text(UNHASHED_REASON + unhashed, encoding="utf-8")


def make(prefer_installed: str | None, upgrade: bool) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        subprocess.run([sys.executable, "-m", "venv", scratch], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--quiet", UV], check=True)
        for which in SETS:
            known = "".join(f"{name}=={version}\n" for name, version in packages(which))
            prefer = "".join(installed()) if prefer_installed == which or not known else known
            write(which, without(resolve(which, folder, prefer, upgrade), LEFT_OUT.get(which, ())))
            print(f"{lock_path(which).relative_to(ROOT)}: {len(packages(which))} packages")
        for alone, text in {BUILT_HERE: BUILT_HERE_HEAD, INSTALLER: INSTALLER_HEAD}.items():
            hashed, _ = split(resolve(alone, folder, "", upgrade=False))
            lock_path(alone).write_text(text + hashed, encoding="utf-8")


def install(which: str) -> None:
    """The set, beside this Python, by uv: it fetches, unpacks and compiles on all cores.

    Raises: subprocess.CalledProcessError: pip could not install uv, or uv the set.
    """
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    with tempfile.TemporaryDirectory() as scratch:
        target = [*pip, "install", "--no-deps", "--target", scratch]
        subprocess.run([*target, "--require-hashes", "-r", str(lock_path(INSTALLER))], check=True)
        command = [str(Path(scratch, "bin", "uv")), "pip", "install", "--python", sys.executable]
        command += ["--no-deps", "--compile-bytecode"]
        environment = os.environ | indexes(pip, local_wheels=True)
        hashed = [*command, "--require-hashes", "-r", str(lock_path(which))]
        subprocess.run(hashed, env=environment, check=True)
        if not unhashed_path(which).is_file():
            return
        unhashed = [*command, "-r", str(unhashed_path(which))]
        if subprocess.run(unhashed, env=environment, check=False).returncode:
            subprocess.run([*unhashed, "--index", TORCH_CPU_INDEX], env=environment, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", choices=SETS)
    parser.add_argument("--install", choices=SETS)
    parser.add_argument("--installed", choices=SETS)
    parser.add_argument("--upgrade", action="store_true")
    arguments = parser.parse_args()
    if arguments.check is not None:
        reason = misfit(arguments.check)
        if reason is not None:
            print(reason)
        return 0 if reason is None else 1
    try:
        if arguments.install is not None:
            install(arguments.install)
            return 0
        make(arguments.installed, arguments.upgrade)
    except (LockError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
