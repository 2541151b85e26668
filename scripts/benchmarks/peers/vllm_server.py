"""vLLM's own server, and the engine that every peer with a real model runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.peers.endpoint import Endpoint, local_url
from benchmarks.peers.processes import server
from deployments.launcher import ports

# The engine of config/local.yaml, without speculation.
ENGINE_ARGUMENTS: Mapping[str, Any] = {
    "dtype": "bfloat16",
    "max_model_len": 4096,
    "max_num_seqs": 16,
    "enable_prefix_caching": True,
    "enforce_eager": True,
}
ENGINE_ENVIRONMENT: Mapping[str, str] = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "TORCHDYNAMO_DISABLE": "1",
}


@contextmanager
def bare_vllm(
    model: str,
    model_folder: Path,
    arguments: Mapping[str, Any] = ENGINE_ARGUMENTS,
    env: Mapping[str, str] = ENGINE_ENVIRONMENT,
) -> Iterator[Endpoint]:
    """Run vLLM's OpenAI server without a proxy."""
    port = ports.free_port()
    command = server_command(model, model_folder, port, arguments)
    with server("vLLM", command, env, local_url(port), model) as endpoint:
        yield endpoint


def server_command(
    model: str, model_folder: Path, port: int, arguments: Mapping[str, Any] = ENGINE_ARGUMENTS
) -> list[str]:
    """The command of a server. It starts the module, because the CPU build has no command ``vllm``."""
    return [
        *[sys.executable, "-m", "vllm.entrypoints.openai.api_server"],
        *["--host", ports.LOOPBACK, "--port", str(port)],
        *["--model", str(model_folder), "--served-model-name", model],
        *(argument for name, value in arguments.items() for argument in option(name, value)),
    ]


def option(name: str, value: Any) -> list[str]:
    """An argument in the form of vLLM's command line: ``True`` is a flag without a value, ``False`` is
    ``--no-...``, and a mapping is JSON."""
    words = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{words}" if value else f"--no-{words}"]
    return [f"--{words}", json.dumps(value) if isinstance(value, Mapping) else str(value)]
