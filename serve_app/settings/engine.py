"""Settings of a vLLM engine and its replicas."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from serve_app.settings.base import Frozen

NEEDS_DRAFT_MODEL = frozenset({"draft_model", "eagle", "eagle3", "medusa"})
OWNED_BY_PROMPTLY = frozenset({"model", "served_model_name", "host", "port", "api_key", "root_path"})
"""vLLM arguments that other settings or the builder decide."""


class SpeculationSettings(Frozen):
    """Speculative decoding (vLLM's ``speculative_config``).

    ``ngram`` and ``suffix`` propose tokens from the text itself; the others need ``model``.
    """

    method: Literal["ngram", "suffix", "draft_model", "eagle", "eagle3", "mtp", "medusa"]
    num_speculative_tokens: int = Field(ge=1, le=32)
    model: str | None = Field(default=None, description="Hub id or folder of the draft model or head.")
    draft_tensor_parallel_size: int | None = Field(default=None, ge=1)
    prompt_lookup_max: int | None = Field(default=None, ge=1, description="Longest n-gram to match (ngram).")
    prompt_lookup_min: int | None = Field(default=None, ge=1, description="Shortest n-gram to match (ngram).")

    @model_validator(mode="after")
    def _method_fits(self) -> Self:
        if self.method in NEEDS_DRAFT_MODEL and self.model is None:
            raise ValueError(f"speculation method {self.method!r} needs `model`")
        if self.method == "ngram" and self.model is not None:
            raise ValueError("speculation method 'ngram' takes no `model`: it looks tokens up in the prompt")
        return self


class AutoscalingSettings(Frozen):
    """Replicas between ``min`` and ``max``, by the engines' own load (running + waiting requests)."""

    min: int = Field(default=1, ge=1)
    max: int = Field(ge=1)
    target_ongoing_requests: float = Field(default=16.0, gt=0, description="Requests a replica should carry.")
    upscale_delay_s: float = Field(default=10.0, ge=0)
    downscale_delay_s: float = Field(default=300.0, ge=0)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"`min` ({self.min}) is greater than `max` ({self.max})")
        return self


class EngineSettings(Frozen):
    """One vLLM engine. Unset values are vLLM's own defaults."""

    accelerator: Literal["cpu", "gpu"] = "gpu"
    accelerator_type: str | None = Field(default=None, description="Ray's accelerator type, such as H100.")
    tensor_parallel_size: int = Field(default=1, ge=1)
    pipeline_parallel_size: int = Field(default=1, ge=1)
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    max_model_len: int | None = Field(default=None, ge=16, description="Context length in tokens.")
    max_num_seqs: int | None = Field(default=None, ge=1)
    max_num_batched_tokens: int | None = Field(default=None, ge=1)
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    cpu_kv_cache_gib: int | None = Field(default=None, ge=1, description="KV cache of a CPU engine, GiB.")
    enable_prefix_caching: bool = True
    enforce_eager: bool = False
    speculation: SpeculationSettings | None = None
    options: dict[str, Any] = Field(default_factory=dict, description="Any other vLLM engine argument.")
    env: dict[str, str] = Field(default_factory=dict, description="Environment of the engine's processes.")
    num_cpus: float = Field(default=1.0, ge=0, description="Logical CPUs of the replica beside its workers.")
    warm_up: bool = True

    @model_validator(mode="after")
    def _device_fits(self) -> Self:
        if self.accelerator == "cpu" and self.accelerator_type is not None:
            raise ValueError("`accelerator_type` names a GPU, but `accelerator` is 'cpu'")
        if self.accelerator == "gpu" and self.cpu_kv_cache_gib is not None:
            raise ValueError("`cpu_kv_cache_gib` is for `accelerator: cpu`; use `gpu_memory_utilization`")
        taken = sorted(self.options.keys() & (OWNED_BY_PROMPTLY | type(self).model_fields.keys()))
        if taken:
            raise ValueError(f"`options` may not set {', '.join(taken)}: Promptly has its own setting for it")
        return self

    @property
    def num_devices(self) -> int:
        return self.tensor_parallel_size * self.pipeline_parallel_size
