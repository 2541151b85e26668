"""A vLLM server with given engine arguments: the times of its answers, and its memory.

    with engine_server(folder, {**ENGINE_ARGUMENTS, "max_model_len": 8192}) as endpoint:
        answers = ask(endpoint, ["Once upon a time"], tokens=32)
        memory = engine_memory(endpoint)

This is ``vllm serve`` with the arguments that Promptly would pass, in one process as in Promptly
(``deployments.engine.vllm.one_process``), without a proxy in front.
"""

from __future__ import annotations

import http.client
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from benchmarks.load import Request, Sample, closed_loop, run_fast
from benchmarks.peers.endpoint import Endpoint, PeerError, environment, exchange, local_url
from benchmarks.peers.processes import READY_TIMEOUT_S, running, scratch_folder
from benchmarks.peers.vllm_server import ENGINE_ENVIRONMENT, server_command
from deployments.launcher.ports import free_port

MODEL = "model"
"""The served name of every model."""

LOAD_LIMIT_S = 600.0
ANSWER_TIMEOUT_S = 60.0
REST_S = 0.2
"""Pause between servers that are asked in turns, because threads of the last one still spin for a while."""

WEIGHT_REPORT = "benchmarks.weight_report.WeightReport"

ONE_PROCESS: Mapping[str, Any] = {
    "distributed_executor_backend": "vllm.v1.executor.uniproc_executor.UniProcExecutor",
}
"""vLLM replaces the short name ``uni`` on CPUs."""

# Only our own calls reach the server, because it listens on the loopback address.
DEVELOPER_MODE: Mapping[str, str] = {"VLLM_SERVER_DEV_MODE": "1"}

Prompt = str | Sequence[int]
"""A text, or token ids."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One greedy answer. ``chunks_s``: arrival of each chunk of text, in seconds after the start of the
    run."""

    sent_s: float
    ttft_s: float
    tpot_s: float
    """Mean time per output token after the first."""
    chunks_s: tuple[float, ...]
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """Memory of a started engine. ``weights``: bytes of the model's tensors; ``copies``: bytes of packed
    copies that its kernels keep beside tensors (on a CPU, embeddings)."""

    kv_tokens: int
    weights: int
    copies: int


@contextmanager
def engine_server(
    folder: Path,
    arguments: Mapping[str, Any],
    env: Mapping[str, str] = ENGINE_ENVIRONMENT,
    *,
    name: str = "vLLM",
) -> Iterator[Endpoint]:
    """Run vLLM's OpenAI server; it is ready when it has completed a text.

    Raises:
        PeerError: the server did not start; the message has the end of its log.
    """
    port = free_port()
    url = local_url(port)
    with (
        scratch_folder() as scratch,
        running(
            name,
            engine_command(folder, arguments, port),
            environment(**env, **DEVELOPER_MODE, OMP_NUM_THREADS=str(len(os.sched_getaffinity(0)))),
            log=scratch / "log",
            ready=lambda: completes(url),
            limit_s=READY_TIMEOUT_S,
        ) as pid,
    ):
        yield Endpoint(name, url, MODEL, (pid,))


def engine_command(folder: Path, arguments: Mapping[str, Any], port: int) -> list[str]:
    """The command of a server that can also report its weights."""
    more = {**ONE_PROCESS, "worker_extension_cls": WEIGHT_REPORT}
    return server_command(MODEL, folder, port, {**arguments, **more})


def completes(url: str) -> bool:
    """Whether the server completes a text, which also works without a chat template."""
    try:
        status, _ = post(url, "/v1/completions", {"model": MODEL, "prompt": "Ready?", "max_tokens": 1})
    except (OSError, http.client.HTTPException):
        return False
    return status == 200


# ---- answers ---------------------------------------------------------------------------------------------


def greedy(prompt: Prompt, tokens: int) -> Request:
    """A streamed completion of exactly ``tokens`` tokens, whose ids are kept."""
    body = {
        "model": MODEL,
        "prompt": prompt if isinstance(prompt, str) else list(prompt),
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "return_token_ids": True,
    }
    return Request("/v1/completions", json.dumps(body).encode(), keep_body=True)


def ask(endpoint: Endpoint, prompts: Sequence[Prompt], tokens: int, *, streams: int = 1) -> list[Answer]:
    """One greedy answer per prompt, ``streams`` at once.

    Raises:
        PeerError: a request failed.
    """
    requests = [greedy(prompt, tokens) for prompt in prompts]
    samples = run_fast(closed_loop(endpoint.url, requests, streams, limit_s=LOAD_LIMIT_S))
    return [answer_of(sample) for sample in samples]


def answer_of(sample: Sample) -> Answer:
    """Raises: PeerError: the request failed."""
    if not sample.ok or sample.ttft_s is None:
        body = (sample.body or b"")[:500].decode(errors="replace")
        raise PeerError(f"a request failed: {sample.error} {body}")
    ids = token_ids_of(sample.body or b"")
    first = sample.sent_at + sample.ttft_s
    chunks = tuple(accumulate(sample.gaps_s, initial=first))
    return Answer(sample.sent_at, sample.ttft_s, sum(sample.gaps_s) / max(len(ids) - 1, 1), chunks, ids)


def token_ids_of(body: bytes) -> tuple[int, ...]:
    """The ids in a streamed answer, in order."""
    events = (line.removeprefix(b"data: ") for line in body.split(b"\n") if line.startswith(b"data: {"))
    choices = (choice for event in events for choice in json.loads(event).get("choices", ()))
    return tuple(token for choice in choices for token in choice.get("token_ids") or ())


# ---- memory ----------------------------------------------------------------------------------------------


def engine_memory(endpoint: Endpoint) -> EngineMemory:
    """The memory that the engine reports after its start.

    Raises:
        PeerError: the engine does not report it.
    """
    status, answer = post(endpoint.url, "/collective_rpc", {"method": "weight_report"})
    if status != 200:
        raise PeerError(f"/collective_rpc: status {status}: {answer[:500]!r}")
    reports = json.loads(answer)["results"]
    return EngineMemory(
        kv_tokens=kv_tokens(get(endpoint.url, "/metrics")),
        weights=max(report["weights"] for report in reports),
        copies=max(report["copies"] for report in reports),
    )


def kv_tokens(metrics: str) -> int:
    """The number of blocks times the tokens per block, from ``vllm:cache_config_info``.

    Raises:
        PeerError: the metric is missing.
    """
    found = re.search(r"^vllm:cache_config_info\{(.*)\}", metrics, re.MULTILINE)
    labels = dict(re.findall(r'(\w+)="([^"]*)"', found[1])) if found else {}
    if not labels:
        raise PeerError("vLLM's metrics have no vllm:cache_config_info")
    return int(labels["num_gpu_blocks"]) * int(labels["block_size"])


# ---- HTTP ------------------------------------------------------------------------------------------------


def get(url: str, path: str) -> str:
    """Raises: PeerError: the status is not 200."""
    status, body = exchange(url, "GET", path, timeout_s=ANSWER_TIMEOUT_S)
    if status != 200:
        raise PeerError(f"{path}: status {status}")
    return body.decode()


def post(url: str, path: str, value: Mapping[str, Any]) -> tuple[int, bytes]:
    """The status and the body of the answer."""
    return exchange(url, "POST", path, json.dumps(value), timeout_s=ANSWER_TIMEOUT_S)
