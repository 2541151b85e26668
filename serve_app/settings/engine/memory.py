"""Settings of GPU memory and of the KV cache."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from serve_app.settings.base import Frozen


class KvOffloadSettings(Frozen):
    """Keep evicted KV blocks in host memory: a prefix that comes back is copied instead of computed."""

    size_gib: float = Field(gt=0, description="Host memory of one engine, GiB, over all its devices.")
    backend: Literal["native", "lmcache"] = "native"


class MemorySettings(Frozen):
    """The part of an engine's settings about memory."""

    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    kv_offload: KvOffloadSettings | None = None
    cpu_kv_cache_gib: int | None = Field(default=None, ge=1, description="KV cache of a CPU engine, GiB.")
    enable_prefix_caching: bool | None = Field(
        default=None,
        description="Default: where vLLM supports it for the model; not for most models that give vectors.",
    )
    enable_sleep_mode: bool = Field(default=False, description="An idle engine can give back GPU memory.")
