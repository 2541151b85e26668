"""Environment variables of an engine's processes."""

from __future__ import annotations

from serve_app.model_store import ModelStore
from serve_app.settings import ModelSettings


def engine_environment(model: ModelSettings, store: ModelStore) -> dict[str, str]:
    """Environment variables of the engine's processes. ``engine.env`` overrides all of them."""
    environment = {
        "VLLM_NO_USAGE_STATS": "1",
        # An allowed media host must not redirect to one that is not allowed.
        "VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0",
        # Keep compiled code between starts: vLLM's own, torch.compile's and Triton's.
        "VLLM_CACHE_ROOT": str(store.cache_dir / "vllm"),
        "TORCHINDUCTOR_CACHE_DIR": str(store.cache_dir / "torchinductor"),
        "TRITON_CACHE_DIR": str(store.cache_dir / "triton"),
    }
    if model.managed_engine.accelerator == "cpu" and model.managed_engine.enforce_eager:
        # vLLM's sampler compiles a few functions even in eager mode: 8 s of every start on two cores.
        environment["TORCHDYNAMO_DISABLE"] = "1"
    if model.managed_engine.cpu_kv_cache_gib is not None:
        environment["VLLM_CPU_KVCACHE_SPACE"] = str(model.managed_engine.cpu_kv_cache_gib)
    return environment | model.managed_engine.env
