"""Build the gateways' image and look into it: what it holds, as whom it runs, and that it runs read-only.

    make images
    make images ARGS="--output FILE"     # keep it, for `podman load --input FILE`

As root, with Debian's buildah. Where the base's registry cannot be reached, debootstrap makes the base; where
PyTorch's index cannot be, its CPU build comes from what pip is set to on this machine (PIP_FIND_LINKS, …).
All lies in a temporary folder (10 GB; TMPDIR says where) that is removed. Exit status 1: a message says why.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lock
import package

from serve_app.version import VERSION

FILE = "config/containers/gateway.Containerfile"
NAME = f"promptly-gateway:{VERSION}"
OWN_BASE = "localhost/debian:bookworm-slim"
USER = "1000"
VENV = "opt/promptly"
CONFIG = "etc/promptly/config.yaml"
"""What the image starts."""

MOST_BYTES = 1_500_000_000
"""Of all files in the image, unpacked."""

FOR_ENGINES = re.compile(r"(nvidia|cuda|triton|vllm)", re.IGNORECASE)
UNNEEDED = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale")
"""What the base of a registry does not have either."""

READ_ONLY = "import os, sys; sys.exit(not os.statvfs('/').f_flag & os.ST_RDONLY)"
COMMANDS = (
    ("promptly", "--version"),
    ("python3", "-c", READ_ONLY),
    ("promptly", "check", f"/{CONFIG}"),
    ("promptly", "doctor", "--offline", f"/{CONFIG}"),
)
NEEDS_NOTHING = """
http_options: {{host: 127.0.0.1, port: {port}}}
applications:
  - name: promptly
    import_path: serve_app.app:build
    args: {{models: [{{id: chat, upstreams: [{{name: other, url: "http://127.0.0.1:9/v1", model: chat}}]}}]}}
"""
"""A config without weights, which are not in the image."""

REACH_TIMEOUT_S, PULL_TIMEOUT_S, PROGRAM_TIMEOUT_S = 10.0, 300.0, 120.0

START = """
set -eu
root=$1 volumes=$2; shift 2
mount --bind "$root" "$root"
for each in $volumes; do mount -t tmpfs -o mode=1777 tmpfs "$root$each"; done
mount -t proc proc "$root/proc"; mount --rbind /sys "$root/sys"; mount --rbind /dev "$root/dev"
mount -o remount,bind,ro "$root"
exec chroot "$root" "$@"
"""
"""In a mount namespace of its own: nothing of it is left when the program ends."""


class ImageError(RuntimeError):
    """There is no image, or it is not as it should be; the message says what is wrong."""


class Store:
    """Where buildah keeps images and containers, apart from those of the machine."""

    def __init__(self, folder: Path, driver: str) -> None:
        self.driver = driver
        self._command = ["buildah", "--root", f"{folder}/images", "--runroot", f"{folder}/run"]

    def buildah(self, *words: str, folder: Path | None = None, timeout_s: float | None = None) -> str:
        return checked([*self._command, "--storage-driver", self.driver, *words], folder, timeout_s).strip()

    def mounted(self, image: str) -> tuple[str, Path]:
        """A new container, and where its files lie."""
        container = self.buildah("from", image)
        return container, Path(self.buildah("mount", container))


def build_arguments(base: str, torch_index: str | None, mounts: Mapping[str, str]) -> list[str]:
    """The documented command, and what this machine needs beside it."""
    words = ["build", "--format", "docker", "-f", FILE, "-t", NAME, "--isolation", "chroot"]
    given = {"BASE": base, "TORCH_INDEX": torch_index}
    words += [f"--build-arg={name}={value}" for name, value in given.items() if value]
    return [*words, *(f"--volume={here}:{inside}:ro" for inside, here in mounts.items()), "."]


def pip_settings(known: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """pip's configuration for the build, and what of this machine it names, by its place there. ``known``: as
    ``lock.indexes`` finds it. The certificates have another place there: the base installs its own."""
    indexes, wheels = known["UV_INDEX"], known.get("UV_FIND_LINKS", "")
    lines = ["[global]", f"index-url = {known['UV_DEFAULT_INDEX']}", f"extra-index-url = {indexes}"]
    local = [Path(each.removeprefix("file://")) for each in indexes.split() if each.startswith("file://")]
    # The pages of such an index name files beside its folder.
    mounts = {str(each.parent): str(each.parent) for each in local}
    if wheels:
        lines.append(f"find-links = {wheels}")
        mounts |= {each: each for each in wheels.split() if each.startswith("/")}
    if certificates := known.get("SSL_CERT_FILE"):
        lines.append("cert = /etc/pip-certificates.crt")
        mounts["/etc/pip-certificates.crt"] = certificates
    return "\n".join([*lines, ""]), mounts


def run_arguments(root: Path, config: Mapping[str, Any], command: Sequence[str]) -> list[str]:
    """A program as it is meant to run: the image's user, no rights, volumes in memory, the rest read-only."""
    user = [f"--reuid={config['User']}", f"--regid={config['User']}", "--clear-groups"]
    rights = ["--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"]
    apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", START, "sh"]
    program = ["env", "-i", *config["Env"], *config["Entrypoint"], *command]
    return [*apart, str(root), " ".join(config["Volumes"]), "setpriv", *user, *rights, *program]


def faults(config: Mapping[str, Any], packages: Iterable[str], size: int) -> Iterator[str]:
    """What is wrong with an image: its configuration, the Python packages in it, its bytes."""
    if config.get("User") != USER:
        yield f"it runs as {config.get('User') or 'root'}, not as user {USER}"
    if "/health" not in " ".join((config.get("Healthcheck") or {}).get("Test", ())):
        yield "it has no health check (is it built in Docker's format?)"
    if found := sorted(each for each in packages if FOR_ENGINES.match(each)):
        yield f"it has packages that only engines need: {', '.join(found)}"
    if size > MOST_BYTES:
        yield f"it has {size / 1e9:.3f} GB, and may have {MOST_BYTES / 1e9:.3f} GB"


def bytes_below(folder: Path) -> int:
    return int(checked(["du", "--summarize", "--bytes", str(folder)]).split()[0])


def checked(command: Sequence[str], folder: Path | None = None, timeout_s: float | None = None) -> str:
    """What it writes. Raises: ImageError: the end of it, and of what it writes of errors."""
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    try:
        done = subprocess.run(command, cwd=folder, timeout=timeout_s, check=True, **pipes)
    except subprocess.TimeoutExpired as error:
        raise ImageError(str(error)) from error
    except subprocess.CalledProcessError as error:
        raise ImageError(f"{error}\n{(error.stdout + error.stderr).strip()[-2000:]}") from error
    return str(done.stdout)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def reached(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=REACH_TIMEOUT_S):
            return True
    except OSError:
        return False


@contextmanager
def opened_store(folder: Path) -> Iterator[Store]:
    """Overlay, or vfs, which copies every layer whole but works everywhere. Nothing stays mounted."""
    store = Store(folder, "overlay")
    try:
        store.buildah("images")
    except ImageError:
        store = Store(folder, "vfs")
    try:
        yield store
    finally:
        store.buildah("rm", "--all")
        store.buildah("rmi", "--all", "--force")


def base(store: Store, containerfile: str) -> str:
    """The base that the file names where its registry is reached, else Debian as debootstrap makes it."""
    (name,) = re.findall(r"^ARG BASE=(\S+)", containerfile, re.MULTILINE)
    try:
        store.buildah("pull", name, timeout_s=PULL_TIMEOUT_S)
        return str(name)
    except ImageError:
        print(f"{name} cannot be fetched: debootstrap makes the base", flush=True)
    container, root = store.mounted("scratch")
    checked(["unshare", "--mount", "debootstrap", "--variant=minbase", "bookworm", str(root)])
    for each in UNNEEDED:
        shutil.rmtree(root / each, ignore_errors=True)
    store.buildah("commit", "--rm", container, OWN_BASE)
    return OWN_BASE


def build(store: Store, folder: Path) -> None:
    """From what git tracks, and a package of it."""
    context, settings = folder / "context", folder / "pip.conf"
    package.copy_tracked(context)
    package.build(context / "dist")
    known = lock.indexes([sys.executable, "-m", "pip"], local_wheels=True)
    text, mounts = pip_settings(known)
    settings.write_text(text, encoding="utf-8")
    install = (context / "config/containers/install.sh").read_text(encoding="utf-8")
    (torch_index,) = re.findall(r"\$\{TORCH_INDEX:-(\S+)\}", install)
    other = None if reached(torch_index) else known["UV_DEFAULT_INDEX"]
    made = base(store, (context / FILE).read_text(encoding="utf-8"))
    store.buildah(*build_arguments(made, other, {"/etc/pip.conf": str(settings), **mounts}), folder=context)


def look_into(store: Store) -> None:
    """Raises: ImageError: all that is wrong."""
    config = json.loads(store.buildah("inspect", "--type", "image", NAME))["Docker"]["config"]
    _, root = store.mounted(NAME)
    size, venv = bytes_below(root), bytes_below(root / VENV)
    print(f"{NAME}: {size / 1e9:.3f} GB, of these {venv / 1e9:.3f} GB in /{VENV}")
    packages = [each.name for each in root.glob(f"{VENV}/lib/python3*/site-packages/*")]
    if wrong := list(faults(config, packages, size)):
        raise ImageError("\n".join(wrong))
    (root / CONFIG).parent.mkdir()
    (root / CONFIG).write_text(NEEDS_NOTHING.format(port=free_port()), encoding="utf-8")
    for command in COMMANDS:
        said = checked(run_arguments(root, config, command), timeout_s=PROGRAM_TIMEOUT_S)
        print(f"$ {shlex.join(command)}\n{said}", end="", flush=True)


def make(output: Path | None) -> None:
    """Raises: ImageError, BuildError."""
    if missing := [each for each in ("buildah", "debootstrap") if shutil.which(each) is None]:
        raise ImageError(f"not installed: {', '.join(missing)} (Debian: apt-get install {' '.join(missing)})")
    if os.geteuid() != 0:
        raise ImageError("only root can mount what is built: use sudo")
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch, opened_store(Path(scratch)) as store:
        build(store, Path(scratch))
        print(f"built in {time.monotonic() - started:.0f} s ({store.driver})", flush=True)
        look_into(store)
        if output is not None:
            store.buildah("push", NAME, f"docker-archive:{output.resolve()}:{NAME}")


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--output", type=Path, help="archive to keep the image in; it must not exist")
    try:
        make(parser.parse_args().output)
    except (ImageError, package.BuildError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
