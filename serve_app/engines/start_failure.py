"""Explains why an engine did not start, in terms of the settings, by recognising vLLM's messages.

The texts are vLLM 0.29's (``v1/worker/cpu_worker.py``, ``v1/worker/utils.py``, ``v1/core/kv_cache_utils.py``,
``utils/ompmultiprocessing.py``, the model loaders) and those of safetensors and PyTorch.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from serve_app.errors import EngineStartError
from serve_app.planning.problems import Problem
from serve_app.settings import ModelSettings

MOST_CHARACTERS = 400
"""Length limit of a reason that is not recognised: some errors print whole configurations."""

GIB_BELOW = 1.0
"""Free memory that stays reserved for everything but the KV cache, in GiB."""

STARTED_BADLY = f"{EngineStartError.__name__}: "

LOW_MEMORY = "a smaller model or KV cache, or a machine with more memory"


@dataclass(frozen=True, slots=True)
class _Known:
    """If ``pattern`` matches the reason, ``problem`` makes the advice for the user."""

    pattern: re.Pattern[str]
    problem: Callable[[re.Match[str], ModelSettings], Problem]


def explained(reason: str, model: ModelSettings) -> str:
    """One line: the setting, its value, the reason and a value that would work; or the reason itself,
    shortened, if it is unknown."""
    flat = " ".join(reason.split())
    for known in _KNOWN:
        found = known.pattern.search(flat)
        if found is not None:
            return str(known.problem(found, model))
    return _shortened(flat)


def _cpu_cache(found: re.Match[str], model: ModelSettings) -> Problem:
    free, wanted = float(found["free"]), found["wanted"]
    fits = int(free - GIB_BELOW)
    works = f"use at most {fits}" if fits >= 1 else f"use {LOW_MEMORY}"
    size = model.managed_engine.cpu_kv_cache_gib
    reason = f"the KV cache needs {wanted} GiB, and this machine has {found['free']} GiB free"
    return Problem("engine.cpu_kv_cache_gib", size, reason, works)


def _cpu_share(found: re.Match[str], model: ModelSettings) -> Problem:
    free, total = float(found["free"]), float(found["total"])
    share = max(free / total - 0.05, 0.05)
    return Problem(
        "engine.gpu_memory_utilization",
        model.managed_engine.gpu_memory_utilization,
        f"the engine may take {found['wanted']} GiB of this machine's {found['total']} GiB, and "
        f"{found['free']} GiB are free",
        f"use at most {share:.2f}, or set `engine.cpu_kv_cache_gib`",
    )


def _gpu_share(found: re.Match[str], model: ModelSettings) -> Problem:
    free, total = float(found["free"]), float(found["total"])
    return Problem(
        "engine.gpu_memory_utilization",
        model.managed_engine.gpu_memory_utilization,
        f"the device has {found['free']} of {found['total']} GiB free",
        f"use at most {max(free / total - 0.02, 0.02):.2f}, or end what else runs there",
    )


def _context(found: re.Match[str], model: ModelSettings) -> Problem:
    estimate = re.search(r"estimated maximum model length is (\d+)", found.string)
    works = f"use at most {estimate[1]}" if estimate else "use less"
    return Problem(
        "engine.max_model_len",
        model.managed_engine.max_model_len or int(found["length"]),
        f"one request of that length needs {found['needed']} GiB of KV cache, and {found['left']} GiB are "
        "left",
        f"{works}, `kv_cache_dtype: fp8`, or more room for the KV cache",
    )


def _no_cache(found: re.Match[str], model: ModelSettings) -> Problem:
    engine = model.managed_engine
    return Problem(
        "engine.gpu_memory_utilization",
        engine.gpu_memory_utilization,
        "after the weights nothing is left for the KV cache",
        f"use more (at most 0.95), or a larger tensor_parallel_size than {engine.tensor_parallel_size}",
    )


def _out_of_memory(found: re.Match[str], model: ModelSettings) -> Problem:
    engine = model.managed_engine
    reason = f"the device ran out of memory ({_shortened(found.string, 160)})"
    works = "use a larger one, a quantised checkpoint, or a smaller max_num_seqs or max_num_batched_tokens"
    return Problem("engine.tensor_parallel_size", engine.tensor_parallel_size, reason, works)


def _killed(found: re.Match[str], model: ModelSettings) -> Problem:
    reason = "the system killed the engine's process (signal 9) as it started: the machine's memory was full"
    return Problem("source", model.managed_source, reason, f"use {LOW_MEMORY}")


def _host_memory(found: re.Match[str], model: ModelSettings) -> Problem:
    reason = f"the machine ran out of memory ({_shortened(found.string, 160)})"
    return Problem("source", model.managed_source, reason, f"use {LOW_MEMORY}")


def _broken_file(found: re.Match[str], model: ModelSettings) -> Problem:
    reason = f"a weight file is damaged ({_shortened(found.string, 160)})"
    return Problem("source", model.managed_source, reason, "copy or prepare the model again")


def _other_shapes(found: re.Match[str], model: ModelSettings) -> Problem:
    reason = f"the weights do not fit its config.json ({_shortened(found.string, 160)})"
    return Problem("source", model.managed_source, reason, "copy or prepare the model again")


def _no_hub(found: re.Match[str], model: ModelSettings) -> Problem:
    reason = f"the hub cannot be reached ({_shortened(found.string, 160)})"
    works = "prepare the model on this machine, or set HF_ENDPOINT to a mirror"
    return Problem("source", model.managed_source, reason, works)


def _gated(found: re.Match[str], model: ModelSettings) -> Problem:
    reason = (
        "this model needs permission: its terms were not accepted, or HF_TOKEN is missing or of another user"
    )
    works = "accept its terms on the hub and start with HF_TOKEN=…, or use a model that is open"
    return Problem("source", model.managed_source, reason, works)


def _threads(found: re.Match[str], model: ModelSettings) -> Problem:
    engine = model.managed_engine
    ranks = engine.tensor_parallel_size * engine.pipeline_parallel_size
    return Problem(
        "engine.env.VLLM_CPU_OMP_THREADS_BIND",
        engine.env.get("VLLM_CPU_OMP_THREADS_BIND", "auto"),
        f"this machine's cores cannot be shared out among {ranks} ranks that way",
        f"name the cores of each rank: '{'|'.join(str(rank) for rank in range(ranks))}'",
    )


_NUMBER = r"\d+(?:\.\d+)?"


def _known(pattern: str, problem: Callable[[re.Match[str], ModelSettings], Problem]) -> _Known:
    return _Known(re.compile(pattern, re.IGNORECASE), problem)


_KNOWN = (
    _known(
        rf"Available memory on node \S+ \((?P<free>{_NUMBER})/{_NUMBER} GiB\) on kv cache allocation is less "
        rf"than requested memory for kv \((?P<wanted>{_NUMBER})",
        _cpu_cache,
    ),
    _known(
        rf"Available memory on node \S+ \((?P<free>{_NUMBER})/(?P<total>{_NUMBER}) GiB\) on startup is less "
        rf"than desired CPU memory utilization \({_NUMBER}, (?P<wanted>{_NUMBER}) GiB\)",
        _cpu_share,
    ),
    _known(
        rf"Free memory on device \S+ \((?P<free>{_NUMBER})/(?P<total>{_NUMBER}) GiB\) on startup is less",
        _gpu_share,
    ),
    _known(
        rf"max seq len \((?P<length>\d+)\), \(?(?P<needed>{_NUMBER}) GiB KV cache is needed, which is larger "
        rf"than the available KV cache memory \((?P<left>-?{_NUMBER}) GiB\)",
        _context,
    ),
    _known(r"No available memory for the cache blocks", _no_cache),
    _known(r"OutOfMemoryError|CUDA out of memory|HIP out of memory", _out_of_memory),
    _known(r"DefaultCPUAllocator: (can.t|not enough)|Cannot allocate memory|MemoryError", _host_memory),
    _known(r"Failed core proc\(s\): \{[^}]*: -9\b", _killed),
    _known(r"SafetensorError|incomplete metadata|invalid ?header|header too (large|small)", _broken_file),
    _known(r"size of tensor|(shape|size) mismatch|exceeds dimension size|== ?loaded_weight", _other_shapes),
    _known(r"GatedRepoError|gated repo|awaiting a review|Access to model .* is restricted", _gated),
    _known(
        r"(couldn't connect to|Failed to resolve|Max retries exceeded|Connection ?Error|LocalEntryNotFound"
        r"|outgoing traffic has been disabled|OfflineModeIsEnabled)",
        _no_hub,
    ),
    _known(r"cpu id list .* doesn't match|OMP_THREADS_BIND|not enough allowed NUMA nodes", _threads),
)


def _shortened(text: str, most: int = MOST_CHARACTERS) -> str:
    """Cuts a text to ``most`` characters. The end stays whole as far as it can: the last words carry the
    reason."""
    if len(text) <= most:
        return text
    head = most // 3
    return f"{text[:head]} … {text[len(text) - (most - head - 3) :]}"


def gist(message: str) -> str:
    """A deployment's status message in one line: the last line of a traceback, without the name of
    ``EngineStartError``."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if not lines:
        return ""
    if "Traceback" not in message and "Error:" not in message:
        return lines[0]
    last = next((line for line in reversed(lines) if STARTED_BADLY in line), lines[-1])
    return last.rpartition(STARTED_BADLY)[2]
