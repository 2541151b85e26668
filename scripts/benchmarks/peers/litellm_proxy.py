"""LiteLLM's proxy in front of an engine, in its own virtual environment.

Its packages conflict with Promptly's, and only its own benchmark needs them, so they are installed at the
first use.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from benchmarks.peers.endpoint import ROOT, Endpoint, PeerError, local_url
from benchmarks.peers.processes import scratch_folder, server
from deployments.launcher import ports

REQUIREMENT = "litellm[proxy]==1.103.0"
FOLDER = ROOT / ".bench-venvs" / "litellm"
INSTALL_TIMEOUT_S = 900.0
QUIET = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it fetches a price list from the network
    "LITELLM_LOG": "ERROR",
    "LITELLM_MODE": "PRODUCTION",  # else it reads a .env file
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
    shutil.rmtree(folder, ignore_errors=True)  # the rest of an interrupted installation
    venv.create(folder, with_pip=True)
    (folder.parent / ".gitignore").write_text("*\n", encoding="utf-8")
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", REQUIREMENT]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=INSTALL_TIMEOUT_S)
    if done.returncode != 0:
        raise PeerError(f"{REQUIREMENT}: {done.stderr.strip()[-2000:]}")
    return program
