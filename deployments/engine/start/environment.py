"""Environment variables of an engine's processes."""

from __future__ import annotations

from serve_app.model_store import ModelStore
from serve_app.settings import ModelSettings


def engine_environment(model: ModelSettings, store: ModelStore) -> dict[str, str]:
    """Environment variables of the engine's processes; the settings' own go before all of them."""
    environment = {
        "VLLM_NO_USAGE_STATS": "1",
        # A host from which media may be fetched must not lead on to one from which none may.
        "VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0",
        # What is compiled at first use is kept between starts, by vLLM and by what it leaves it to.
        "VLLM_CACHE_ROOT": str(store.cache_dir / "vllm"),
        "TORCHINDUCTOR_CACHE_DIR": str(store.cache_dir / "torchinductor"),
        "TRITON_CACHE_DIR": str(store.cache_dir / "triton"),
    }
    if model.managed_engine.accelerator == "cpu" and model.managed_engine.enforce_eager:
        # vLLM's sampler compiles a few functions all the same: on two cores, 8 s of every start.
        environment["TORCHDYNAMO_DISABLE"] = "1"
    if model.managed_engine.cpu_kv_cache_gib is not None:
        environment["VLLM_CPU_KVCACHE_SPACE"] = str(model.managed_engine.cpu_kv_cache_gib)
    return environment | model.managed_engine.env
