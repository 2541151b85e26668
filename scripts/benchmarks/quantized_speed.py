"""The time per output token of two model folders in vLLM on this machine, one server at a time, in turn."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from quantization.figures import Speed, agreement

from benchmarks.engine_server import Answer, ask, engine_server
from benchmarks.peers.endpoint import PeerError
from benchmarks.peers.vllm_server import ENGINE_ARGUMENTS

PROMPTS = (
    "Question: Why is the sky blue?\nAnswer:",
    "Question: How does a bicycle stay upright?\nAnswer:",
    "A recipe for vegetable soup. You need",
    "The lighthouse keeper climbed the stairs, and",
    "def is_prime(number):\n",
    "Three facts about the Moon:\n1.",
)
TOKENS, WARM_TOKENS = 64, 8
CPU_ARGUMENTS: Mapping[str, Any] = {**ENGINE_ARGUMENTS, "max_model_len": 1024}
GPU_ARGUMENTS: Mapping[str, Any] = {"max_model_len": 1024, "max_num_seqs": 16}
NOT_ASKED = "--rounds 0"
REASON_CHARACTERS = 300


def measure_speed(before: Path, after: Path, rounds: int) -> tuple[Speed | None, str]:
    """The speed, or ``None`` and the reason, because vLLM does not support every scheme on every machine."""
    if not rounds:
        return None, NOT_ASKED
    times: dict[Path, list[float]] = {before: [], after: []}
    texts: dict[Path, list[tuple[int, ...]]] = {}
    for number in range(rounds):
        for folder in (before, after)[:: -1 if number % 2 else 1]:
            try:
                answers = _answers(folder)
            except PeerError as error:
                return None, f"vLLM could not serve {folder.name} here: {last_reason(str(error))}"
            times[folder].append(median(answer.tpot_s for answer in answers) * 1000)
            texts[folder] = [answer.token_ids for answer in answers]
    equal = agreement(texts[before], texts[after])
    return Speed(tuple(times[before]), tuple(times[after]), equal), ""


def _answers(folder: Path) -> list[Answer]:
    arguments = GPU_ARGUMENTS if Path("/dev/nvidia0").exists() else CPU_ARGUMENTS
    with engine_server(folder, arguments) as endpoint:
        ask(endpoint, PROMPTS[:1], WARM_TOKENS)
        return ask(endpoint, PROMPTS, TOKENS)


def last_reason(log: str) -> str:
    """The last line of a log that names an error; in a Python traceback that line is the reason."""
    lines = [line.strip() for line in log.splitlines() if "Error: " in line or "error: " in line]
    reason = lines[-1] if lines else log.strip().splitlines()[-1] if log.strip() else "no reason given"
    return reason[-REASON_CHARACTERS:]
