"""The names of ``ray.serve.llm`` and vLLM that are not public, in one place.

Checked against Ray 2.60 and vLLM 0.29. When either moves, look at:

- ``LLMServer.engine`` (a ``VLLMEngine``) and its ``build_asgi_app()``: vLLM's own FastAPI app;
- ``VLLMEngine._engine_client``: the ``AsyncLLM``;
- ``AsyncLLM.logger_manager.stat_loggers``: vLLM lets stat loggers be given only at construction,
  which ``ray.serve.llm`` does; the list is read at every step, so one more can join later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp

from serve_app.openai.continuation import TokenLimits


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """Requests at the engine; ``kv_cache_usage`` is a share from 0 to 1."""

    running: int
    waiting: int
    kv_cache_usage: float


class LoadProbe:
    """A vLLM stat logger that only remembers the scheduler's newest numbers."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._waiting = 0
        self._kv_cache_usage = 0.0
        if client.logger_manager is not None:
            client.logger_manager.stat_loggers.append(self)

    def load(self) -> EngineLoad:
        """The scheduler reports only when it steps; the count of unfinished requests is always right."""
        unfinished = self._client.get_num_unfinished_requests()
        waiting = min(self._waiting, unfinished)
        return EngineLoad(unfinished - waiting, waiting, self._kv_cache_usage if unfinished else 0.0)

    @property
    def failed(self) -> bool:
        """The engine's process is gone; Serve's health check will replace the replica."""
        return bool(self._client.errored)

    def record(self, scheduler_stats: Any, *args: Any, **kwargs: Any) -> None:
        if scheduler_stats is not None:
            self._waiting = scheduler_stats.num_waiting_reqs
            self._kv_cache_usage = scheduler_stats.kv_cache_usage

    def log(self) -> None:
        """Part of vLLM's interface; there is nothing to print."""

    def log_engine_initialized(self) -> None:
        """Part of vLLM's interface."""

    def record_sleep_state(self, *args: Any, **kwargs: Any) -> None:
        """Part of vLLM's interface."""


def load_probe(server: Any) -> LoadProbe:
    """A probe on the engine of a started ``LLMServer``."""
    return LoadProbe(server.engine._engine_client)


def max_num_seqs(server: Any) -> int:
    """How many requests the engine runs at once."""
    return int(server.engine._engine_client.vllm_config.scheduler_config.max_num_seqs)


def kv_cache_tokens(server: Any) -> int:
    """How many tokens the KV cache holds; 0 if the engine does not say."""
    cache = server.engine._engine_client.vllm_config.cache_config
    return int((cache.num_gpu_blocks or 0) * (cache.block_size or 0))


def token_limits(server: Any) -> TokenLimits:
    """The bounds of an answer whose request names none, as in vLLM's ``get_max_tokens`` and its callers."""
    model = server.engine._engine_client.vllm_config.model_config
    default = model.get_diff_sampling_param().get("max_tokens")
    named = model.generation_config not in ("auto", "vllm")
    cap = default if named else model.override_generation_config.get("max_new_tokens")
    return TokenLimits(context=int(model.max_model_len), default=default, cap=cap)


async def build_asgi_app(server: Any) -> ASGIApp:
    """vLLM's own FastAPI app on the engine of a started ``LLMServer``."""
    app: ASGIApp = await server.engine.build_asgi_app()
    return app


def shut_down(server: Any) -> None:
    """End the engine's processes now instead of when this process exits."""
    server.engine._engine_client.shutdown()
