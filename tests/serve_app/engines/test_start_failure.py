"""vLLM's reasons become one line with the setting and a value that would work. The texts are vLLM 0.29's."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.engines.start_failure import explained, gist
from serve_app.settings import EngineSettings, ModelSettings


def model(**engine: Any) -> ModelSettings:
    settings: dict[str, Any] = {"accelerator": "cpu"} | engine
    return ModelSettings(id="m", source="owner/target", engine=EngineSettings(**settings))


CPU_CACHE = (
    "ValueError: Available memory on node 0 (20.5/23.4 GiB) on kv cache allocation is less than requested "
    "memory for kv (64.0 GiB). Decrease --kv-cache-memory-bytes, VLLM_CPU_KVCACHE_SPACE, or reduce CPU "
    "memory used by other processes."
)
CPU_SHARE = (
    "ValueError: Available memory on node 0 (10.0/20.0 GiB) on startup is less than desired CPU memory "
    "utilization (0.92, 18.4 GiB). On the CPU backend, the `--gpu-memory-utilization` flag controls …"
)
GPU_SHARE = (
    "ValueError: Free memory on device cuda:0 (40.0/80.0 GiB) on startup is less than desired GPU memory "
    "utilization (0.92, 73.6 GiB). Decrease GPU memory utilization or reduce GPU memory used by others."
)
CONTEXT = (
    "ValueError: To serve at least one request with the model's max seq len (131072), (16.0 GiB KV cache is "
    "needed, which is larger than the available KV cache memory (4.25 GiB). Based on the available memory, "
    "the estimated maximum model length is 34816. Try increasing `gpu_memory_utilization` …"
)


@pytest.mark.parametrize(
    ("reason", "engine", "expected"),
    [
        (
            CPU_CACHE,
            {"cpu_kv_cache_gib": 64},
            "engine.cpu_kv_cache_gib = 64: the KV cache needs 64.0 GiB, and this machine has 20.5 GiB free; "
            "use at most 19",
        ),
        (CPU_SHARE, {}, "use at most 0.45, or set `engine.cpu_kv_cache_gib`"),
        (GPU_SHARE, {"accelerator": "gpu"}, "engine.gpu_memory_utilization = None: the device has 40.0 of"),
        (CONTEXT, {}, "engine.max_model_len = 131072: one request of that length needs 16.0 GiB"),
        (CONTEXT, {"max_model_len": 131072}, "use at most 34816, `kv_cache_dtype: fp8`"),
        (
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` …",
            {"accelerator": "gpu"},
            "engine.gpu_memory_utilization",
        ),
        (
            "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            {"accelerator": "gpu"},
            "engine.tensor_parallel_size = 1: the device ran out of memory",
        ),
        (
            "RuntimeError: [enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory",
            {},
            "the machine ran out of memory",
        ),
        (
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): "
            "{'EngineCore': -9}",
            {},
            "source = 'owner/target': the system killed the engine's process (signal 9)",
        ),
        (
            "SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered",
            {},
            "source = 'owner/target': a weight file is damaged",
        ),
        (
            "AssertionError: Not enough allowed NUMA nodes to bind threads of 2 local CPUWorkers. Allowed "
            "NUMA nodes are [0]. Please try to bind threads manually or decrease DP/TP/PP.",
            {"tensor_parallel_size": 2},
            "engine.env.VLLM_CPU_OMP_THREADS_BIND = 'auto': this machine's cores cannot be shared out among "
            "2 ranks that way; name the cores of each rank: '0|1'",
        ),
        (
            "OSError: We couldn't connect to 'https://huggingface.co' to load the files",
            {},
            "source = 'owner/target': the hub cannot be reached",
        ),
    ],
)
def test_a_known_reason_names_the_setting_and_what_works(
    reason: str, engine: dict[str, Any], expected: str
) -> None:
    line = explained(reason, model(**engine))
    assert expected in line
    assert "\n" not in line


def test_another_reason_keeps_its_words_in_one_short_line() -> None:
    line = explained("ValueError: something\n  else\n" + "x" * 1000, model())
    assert line.startswith("ValueError: something else x")
    assert len(line) == 400


TRACEBACK = """The deployment failed to start 3 times in a row. See controller logs for details. Error:
ray::ServeReplica:app:Engine:m.initialize_and_get_metadata() (pid=1, ip=127.0.0.1)
  File "replica.py", line 1, in initialize_and_get_metadata
    raise RuntimeError(traceback.format_exc()) from None
RuntimeError: Traceback (most recent call last):
  File "engine.py", line 50, in __init__
serve_app.errors.EngineStartError: model 'm': source = 'x': no such folder; give a folder
"""


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("", ""),
        (TRACEBACK, "model 'm': source = 'x': no such folder; give a folder"),
        ("Traceback (most recent call last):\n  File\nKeyError: 'a'\n", "KeyError: 'a'"),
        ("'m' has 2 replicas that wait.\nUse `ray status`.", "'m' has 2 replicas that wait."),
    ],
)
def test_the_gist_of_a_deployments_message(message: str, expected: str) -> None:
    assert gist(message) == expected


GATED = (
    "OSError: You are trying to access a gated repo. Make sure to have access to it at https://hub/x. 401 "
    "Client Error. Cannot access gated repo for url https://hub/x/config.json. Access to model x is "
    "restricted. You must have access to it and be authenticated to access it. Please log in."
)


def test_a_gated_model_is_said_with_both_steps() -> None:
    said = explained(GATED, model())
    assert said.startswith("source = 'owner/target': this model needs permission")
    assert "accept its terms on the hub and start with HF_TOKEN=" in said


def test_the_end_of_a_long_reason_stays() -> None:
    """The last words carry the reason; what is cut is the middle."""
    said = explained(f"ValueError: {'a long configuration, ' * 60}and the kernel needs nvcc", model())
    assert said.startswith("ValueError: a long")
    assert said.endswith("and the kernel needs nvcc")
    assert len(said) <= 400
