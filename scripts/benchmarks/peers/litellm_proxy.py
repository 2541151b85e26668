"""LiteLLM's proxy in front of an engine, in its own virtual environment.

Its packages conflict with Promptly's, and only the benchmarks with LiteLLM need them, so they are installed
at the first use.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from benchmarks.peers.endpoint import ROOT, Endpoint, PeerError, environment, local_url
from benchmarks.peers.processes import READY_TIMEOUT_S, running, scratch_folder, server
from deployments.cli.endpoint import CannotConnect, asked
from deployments.launcher import ports

REQUIREMENT = "litellm[proxy]==1.103.0"
FOLDER = ROOT / ".bench-venvs" / "litellm"
INSTALL_TIMEOUT_S = 900.0
DATABASE = "BENCH_LITELLM_DATABASE_URL"
QUIET = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # otherwise it fetches a price list from the network
    "LITELLM_LOG": "ERROR",
    "LITELLM_MODE": "PRODUCTION",  # otherwise it reads a .env file
    "HF_HUB_OFFLINE": "1",
}


@contextmanager
def litellm(
    upstream_url: str, model: str, *, workers: int = 1, others: Sequence[str] = ()
) -> Iterator[Endpoint]:
    """LiteLLM in front of ``upstream_url`` (no path) and ``others``, which serve ``model``. The endpoint's
    processes do not include the engine. ``workers`` processes share the port; 1 is LiteLLM's own default.
    """
    program = install()
    port = ports.free_port()
    with scratch_folder() as folder:
        config = folder / "config.yaml"
        config.write_text(yaml.safe_dump(proxy_config(upstream_url, model, others)), encoding="utf-8")
        command = [str(program), "--config", str(config), "--host", ports.LOOPBACK, "--port", str(port)]
        command += ["--num_workers", str(workers), "--telemetry", "False"]
        with server("LiteLLM", command, QUIET, local_url(port), model) as endpoint:
            yield endpoint


@contextmanager
def litellm_with_keys(upstream_url: str, model: str) -> Iterator[tuple[Endpoint, str]]:
    """LiteLLM that keeps keys and their spending in the Postgres database that ``DATABASE`` names, and one
    key with limits.

    Raises:
        PeerError: the variable is not set, or LiteLLM does not start with the database.
    """
    database = os.environ.get(DATABASE)
    if not database:
        raise PeerError(f"its keys need a Postgres database: set {DATABASE}")
    program, port, master = install(), ports.free_port(), f"sk-{secrets.token_hex(16)}"
    with scratch_folder() as folder:
        config = folder / "config.yaml"
        settings = {"master_key": master, "database_url": database}
        values = proxy_config(upstream_url, model) | {"general_settings": settings}
        config.write_text(yaml.safe_dump(values), encoding="utf-8")
        command = [str(program), "--config", str(config), "--host", ports.LOOPBACK, "--port", str(port)]
        url, env = local_url(port), environment(**QUIET)
        with running(
            "LiteLLM with keys",
            [*command, "--telemetry", "False"],
            env,
            log=folder / "log",
            ready=lambda: _key(url, master) is not None,
            limit_s=READY_TIMEOUT_S,
        ) as pid:
            key = _key(url, master)
            assert key is not None, "it has just made one"
            yield Endpoint("LiteLLM with keys", url, model, (pid,)), key


def _key(url: str, master: str) -> str | None:
    """A new key with limits that are not reached; ``None`` while LiteLLM cannot make one yet."""
    headers, limits = {"authorization": f"Bearer {master}"}, {"rpm_limit": 10**6, "tpm_limit": 10**9}
    try:
        return str(asked(f"{url}/key/generate", {**limits, "max_budget": 10**6}, headers)["key"])
    except (CannotConnect, KeyError):
        return None


def proxy_config(upstream_url: str, model: str, others: Sequence[str] = ()) -> dict[str, Any]:
    """A config of one model, without database and keys."""
    upstreams = [
        {"model": f"hosted_vllm/{model}", "api_base": f"{url}/v1", "api_key": "none"}
        for url in (upstream_url, *others)
    ]
    return {
        "model_list": [{"model_name": model, "litellm_params": upstream} for upstream in upstreams],
        "litellm_settings": {"telemetry": False},
    }


def install(folder: Path = FOLDER) -> Path:
    """The program ``litellm``. The first call installs it, which takes minutes.

    Raises:
        PeerError: pip could not install it; the message is pip's own.
    """
    program = folder / "bin" / "litellm"
    if program.exists():
        return program
    print(f"installing {REQUIREMENT} into {folder} ...", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)  # removes the rest of an interrupted installation
    venv.create(folder, with_pip=True)
    (folder.parent / ".gitignore").write_text("*\n", encoding="utf-8")
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", REQUIREMENT]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=INSTALL_TIMEOUT_S)
    if done.returncode != 0:
        raise PeerError(f"{REQUIREMENT}: {done.stderr.strip()[-2000:]}")
    return program
