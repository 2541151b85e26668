"""A real model under vLLM's load generator: vLLM's bare server, Promptly, and ``ray.serve.llm``.

SmolLM2 135M runs on this machine's CPUs, with the same engine arguments everywhere, and without speculation,
cache and embedder, so that only the serving layer differs. One server runs at a time, because two would
compete for the cores. A closed loop of 1, 4 and 16 streams sends random prompts, the same ones to every
server; levels share no prompts, so none is found in the prefix cache. Prompts are short text completions
without a chat template: on a CPU without bfloat16 instructions a prompt token costs as much as an answer
token, and a second of prefill would hide the milliseconds of the serving layer.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.layer import layout
from benchmarks.options import Options
from benchmarks.peers import Endpoint, PeerError, bare_vllm, promptly, ray_serve_llm_real
from benchmarks.peers.endpoint import environment
from benchmarks.peers.processes import LOG_TAIL_CHARS
from benchmarks.peers.vllm_server import ENGINE_ARGUMENTS
from benchmarks.table import Figure, at_least, at_most, plot_bars, write_report
from deployments.launcher import ports
from serve_app.model_store import ModelStore, default_cache_dir

MODEL = "smollm2-135m-instruct"
SOURCE = "HuggingFaceTB/SmolLM2-135M-Instruct"
INPUT_TOKENS, OUTPUT_TOKENS = 16, 48
STREAMS = (1, 4, 16)
REQUESTS = {1: 16, 4: 24, 16: 32}
"""Requests per level; each level takes half a minute on two cores."""

QUICK_REQUESTS = {1: 2, 4: 4, 16: 16}
WARM_STREAMS, WARM_REQUESTS = 4, 4
LOAD_LIMIT_S = 600.0
"""Seconds for all levels of one server."""

BARE, PROMPTLY, RAY_SERVE_LLM = "bare vLLM", "Promptly", "ray.serve.llm"
ABOUT = {
    "engine": f"{SOURCE}, CPU, " + ", ".join(f"{name} {value}" for name, value in ENGINE_ARGUMENTS.items()),
    "load": f"vllm.benchmarks.serve, closed loop, {INPUT_TOKENS} random tokens in, {OUTPUT_TOKENS} out",
}

GENERATOR = """
import json, sys
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
add_cli_args(parser)
for arguments in json.loads(sys.argv[1]):
    main(parser.parse_args(arguments))
"""
"""Runs ``vllm bench serve`` several times in one process: the CPU build has no command ``vllm``."""


@dataclass(frozen=True)
class Level:
    """One run at one number of streams."""

    ttft_p50_ms: float
    ttft_p99_ms: float
    tpot_p50_ms: float
    """Time per output token after the first, median over the requests."""
    tokens_per_s: float
    failed: float


UNITS = {
    "ttft_p50_ms": ("TTFT p50", "ms"),
    "ttft_p99_ms": ("TTFT p99", "ms"),
    "tpot_p50_ms": ("TPOT p50", "ms"),
    "tokens_per_s": ("throughput", "tok/s"),
    "failed": ("failed requests", ""),
}

Levels = dict[int, Level]
"""The results of one server, by number of streams."""

Repeat = dict[str, Levels]
"""The results of one repeat, by server."""


def model_folder() -> Path:
    """Raises: PeerError: the model has not been prepared."""
    folder = ModelStore(default_cache_dir()).folder(SOURCE)
    if not folder.is_dir():
        raise PeerError(f"{folder} is missing: run `make setup`")
    return folder


def managed_model(env: Mapping[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """The model in Promptly's settings, with the engine arguments of every other server here. ``env`` is the
    environment of the engine's processes, ``more`` are settings of the model."""
    engine = {"accelerator": "cpu", "num_cpus": 0, "cpu_kv_cache_gib": 1, **ENGINE_ARGUMENTS}
    return {"id": MODEL, "source": SOURCE, "engine": {**engine, "env": dict(env or {})}, **more}


def servers(folder: Path) -> dict[str, Callable[[], AbstractContextManager[Endpoint]]]:
    return {
        BARE: lambda: bare_vllm(MODEL, folder),
        PROMPTLY: lambda: promptly({"models": [managed_model()]}),
        RAY_SERVE_LLM: lambda: ray_serve_llm_real(MODEL, folder),
    }


def run(options: Options) -> list[Figure]:
    repeats = [_repeat(options, number) for number in range(options.repeats)]
    figures = all_figures(repeats)
    write_report(options.out, "vllm", figures, layout=layout, about=ABOUT)
    shown = [figure for figure in figures if figure.name.startswith("TTFT p50,")]
    plot_bars(options.out / "vllm.png", "SmolLM2 135M: time to first token", shown)
    return figures


def _repeat(options: Options, number: int) -> Repeat:
    folder = model_folder()
    requests = QUICK_REQUESTS if options.quick else REQUESTS
    measured = {}
    for name, server in list(servers(folder).items())[:: options.order(number)]:
        with server() as endpoint:
            measured[name] = measure(endpoint, folder, requests)
    return measured


def measure(endpoint: Endpoint, tokenizer: Path, requests: Mapping[int, int]) -> Levels:
    """Measure every level after a warm-up; ``requests`` is by number of streams.

    Raises:
        PeerError: the load generator failed.
    """
    with TemporaryDirectory() as folder:
        results = Path(folder)
        runs = [arguments(endpoint, tokenizer, WARM_STREAMS, WARM_REQUESTS, results / "warm.json", seed=0)]
        runs += [
            arguments(endpoint, tokenizer, streams, count, results / f"{streams}.json", seed=streams)
            for streams, count in requests.items()
        ]
        _generate(runs)
        return {streams: read_level(results / f"{streams}.json") for streams in requests}


def arguments(
    endpoint: Endpoint, tokenizer: Path, streams: int, requests: int, result: Path, *, seed: int
) -> list[str]:
    """The arguments of ``vllm bench serve``."""
    values = {
        "backend": "openai",
        "base-url": endpoint.url,
        "endpoint": "/v1/completions",
        "model": endpoint.model,
        "tokenizer": tokenizer,
        "dataset-name": "random",
        "seed": seed,
        "random-input-len": INPUT_TOKENS,
        "random-output-len": OUTPUT_TOKENS,
        "num-prompts": requests,
        "max-concurrency": streams,
        "temperature": 0,
        "result-dir": result.parent,
        "result-filename": result.name,
    }
    named = [word for name, value in values.items() for word in (f"--{name}", str(value))]
    return [*named, "--ignore-eos", "--save-result", "--disable-tqdm"]


def _generate(runs: Sequence[Sequence[str]]) -> None:
    command = [sys.executable, "-c", GENERATOR, json.dumps(runs)]
    env = environment(HF_HUB_OFFLINE="1", NO_PROXY=ports.LOOPBACK, no_proxy=ports.LOOPBACK)
    done = subprocess.run(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LOAD_LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        raise PeerError(f"vLLM's load generator failed:\n{done.stdout[-LOG_TAIL_CHARS:]}")


def read_level(result: Path) -> Level:
    """The results in the file that ``--save-result`` wrote."""
    document = json.loads(result.read_text(encoding="utf-8"))
    return Level(
        ttft_p50_ms=document["median_ttft_ms"],
        ttft_p99_ms=document["p99_ttft_ms"],
        tpot_p50_ms=document["median_tpot_ms"],
        tokens_per_s=document["output_throughput"],
        failed=document["failed"],
    )


def all_figures(repeats: Sequence[Repeat]) -> list[Figure]:
    """The targets first, then every measured number."""
    shown = targets(repeats)
    for streams in STREAMS:
        for name in (BARE, PROMPTLY, RAY_SERVE_LLM):
            shown += _figures(name, streams, [repeat[name][streams] for repeat in repeats])
    return shown


def targets(repeats: Sequence[Repeat]) -> list[Figure]:
    """The targets, from Promptly's and the bare server's results of the same repeat."""
    alone = [(repeat[BARE][1], repeat[PROMPTLY][1]) for repeat in repeats]
    crowd = [(repeat[BARE][16], repeat[PROMPTLY][16]) for repeat in repeats]
    return [
        Figure(
            "TTFT p50 over bare, 1 stream",
            "ms",
            tuple(behind.ttft_p50_ms - bare.ttft_p50_ms for bare, behind in alone),
            at_most(8),
        ),
        Figure(
            "throughput over bare, 16 streams",
            "×",
            tuple(behind.tokens_per_s / bare.tokens_per_s for bare, behind in crowd),
            at_least(0.97),
        ),
    ]


def _figures(series: str, streams: int, levels: Sequence[Level]) -> list[Figure]:
    suffix = "1 stream" if streams == 1 else f"{streams} streams"
    return [
        Figure(
            f"{name}, {suffix}",
            unit,
            tuple(float(getattr(level, field)) for level in levels),
            series=series,
        )
        for field, (name, unit) in UNITS.items()
    ]
