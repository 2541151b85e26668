"""One engine's settings as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from serve_app.planning.architecture import Config
from serve_app.planning.execution import Execution, execution
from serve_app.planning.hardware import Device
from serve_app.settings import EngineSettings, ModelSettings

GIB = 2**30
DEFAULT_UTILIZATION = 0.92
"""``CacheConfig.gpu_memory_utilization`` of vLLM 0.29."""

BLOCK_TOKENS = 16
CPU_BLOCK_TOKENS = 128
"""Tokens of a KV block: ``CacheConfig.DEFAULT_BLOCK_SIZE``, and ``CpuPlatform``'s own default."""


@dataclass(frozen=True, slots=True)
class Draft:
    """Speculation as configured. ``tensor_parallel`` 0: the same as the target's."""

    method: str
    tokens: int
    model: str | None
    tensor_parallel: int
    maps_vocabulary: bool


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """Sizes of one engine, in tokens, devices and shares. ``None``: vLLM chooses. ``adapters``: how many LoRA
    adapters a batch may hold, and their highest rank. ``prefill_replicas``: replicas that only prefill, in
    addition to those that decode. ``execution``: how vLLM runs it on a GPU."""

    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    expert_parallel: bool
    dtype: str
    max_model_len: int | None
    allows_longer: bool
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    for_throughput: bool
    utilization: float
    quantization: str | None
    kv_cache_dtype: str
    kv_cache_bytes: int | None
    block_tokens: int
    has_graphs: bool
    on_cpu: bool
    accelerator_type: str | None
    draft: Draft | None
    adapters: tuple[int, int] | None
    prefill_replicas: int
    execution: Execution | None = None

    @property
    def devices(self) -> int:
        """Devices of one replica."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel

    @property
    def first_runner(self) -> bool:
        """Whether vLLM uses its first model runner, whose sampler needs more memory."""
        return self.execution is not None and self.execution.runner == 1

    def sequences(self, device: Device | None) -> int:
        """``max_num_seqs``, or the default of ``EngineArgs.get_batch_defaults`` for an API server."""
        return self.max_num_seqs or min(_batch_defaults(self, device)[1], self.batched_tokens(device))

    def batched_tokens(self, device: Device | None) -> int:
        """``max_num_batched_tokens``, or the default of ``EngineArgs.get_batch_defaults`` for an API
        server."""
        return self.max_num_batched_tokens or _batch_defaults(self, device)[0]


def _batch_defaults(request: EngineRequest, device: Device | None) -> tuple[int, int]:
    """Batched tokens and sequences; ``performance_mode: throughput`` doubles both."""
    tokens, sequences = _device_defaults(request, device)
    return (2 * tokens, 2 * sequences) if request.for_throughput else (tokens, sequences)


def _device_defaults(request: EngineRequest, device: Device | None) -> tuple[int, int]:
    if request.on_cpu:
        ranks = request.tensor_parallel * request.pipeline_parallel
        return 2048 * ranks, 128 * ranks
    memory = 0.0 if device is None else device.memory_gib
    if memory >= 160:
        return 16384, 1024
    if memory >= 70 and device is not None and not device.name.startswith("A100"):
        return 8192, 1024
    return 2048, 256


def engine_request(model: ModelSettings) -> EngineRequest:
    """The sizes of ``model``'s engine. The model must have managed replicas."""
    engine = model.managed_engine
    on_cpu = engine.accelerator == "cpu"
    default_block = CPU_BLOCK_TOKENS if on_cpu else BLOCK_TOKENS
    return EngineRequest(
        tensor_parallel=engine.tensor_parallel_size,
        pipeline_parallel=engine.pipeline_parallel_size,
        data_parallel=engine.data_parallel_size,
        expert_parallel=engine.enable_expert_parallel,
        dtype=engine.dtype,
        max_model_len=engine.max_model_len,
        allows_longer=engine.env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") == "1",
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        for_throughput=engine.performance_mode == "throughput",
        utilization=engine.gpu_memory_utilization or DEFAULT_UTILIZATION,
        quantization=engine.quantization,
        kv_cache_dtype=engine.kv_cache_dtype or "auto",
        kv_cache_bytes=_kv_cache_bytes(engine),
        block_tokens=int(engine.options.get("block_size") or default_block),
        has_graphs=not on_cpu and _has_graphs(engine),
        on_cpu=on_cpu,
        accelerator_type=engine.accelerator_type,
        draft=_draft(engine),
        adapters=None if engine.lora is None else (engine.lora.batch_loras, engine.lora.max_lora_rank),
        prefill_replicas=0 if engine.disaggregation is None else engine.disaggregation.prefill_replicas,
        execution=execution(engine),
    )


def configured(config: Config, model: ModelSettings) -> Config:
    """A model's ``config.json`` after ``engine.options.hf_overrides``, as vLLM reads it."""
    overrides = model.managed_engine.options.get("hf_overrides")
    return _merged(config, overrides) if isinstance(overrides, Mapping) else config


def _merged(config: Config, overrides: Config) -> Config:
    merged = dict(config)
    for key, value in overrides.items():
        inner = merged.get(key)
        if isinstance(value, Mapping) and isinstance(inner, Mapping):
            merged[key] = _merged(inner, value)
        else:
            merged[key] = value
    return merged


def _has_graphs(engine: EngineSettings) -> bool:
    return not (engine.enforce_eager or engine.cudagraph_mode == "none" or engine.optimization_level == 0)


def _kv_cache_bytes(engine: EngineSettings) -> int | None:
    """An explicit size of the KV cache: ``cpu_kv_cache_gib`` is vLLM's ``VLLM_CPU_KVCACHE_SPACE``."""
    space = engine.env.get("VLLM_CPU_KVCACHE_SPACE") or engine.cpu_kv_cache_gib
    if engine.accelerator == "cpu" and space:
        return int(space) * GIB
    found = engine.options.get("kv_cache_memory_bytes")
    return None if found is None else int(found)


def _draft(engine: EngineSettings) -> Draft | None:
    settings = engine.speculation
    if settings is None:
        return None
    return Draft(
        settings.method,
        settings.num_speculative_tokens,
        settings.model,
        settings.draft_tensor_parallel_size or 0,
        bool(settings.use_heterogeneous_vocab),
    )
