"""All uses of non-public names of ``ray.serve.llm`` and vLLM at run time.

Checked against Ray 2.60 and vLLM 0.29. When either moves, look at:

- ``LLMServer.engine`` (a ``VLLMEngine``) and its ``build_asgi_app()``: vLLM's own FastAPI app;
- ``VLLMEngine._engine_client``: the ``AsyncLLM``;
- ``AsyncLLM.sleep`` and its ``mode``; ``AsyncLLM.get_supported_tasks``, and ``enable_scoring_api`` of vLLM's
  pooling entrypoints;
- ``LLMServer.collective_rpc``: calls a method of each worker by its name, also one that a
  ``worker_extension_cls`` added;
- ``AsyncLLM.output_processor``: unfinished requests and their prompt tokens;
- ``AsyncLLM.logger_manager.stat_loggers``: vLLM accepts stat loggers only at construction, which
  ``ray.serve.llm`` does; the list is read at every step, so one can be appended later.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp

from deployments.engine.vllm.device_number import DeviceNumber
from deployments.engine.vllm.refusals import Refusals
from deployments.engine.vllm.resume import Resuming
from serve_app.autoscaling import EngineSpeed
from serve_app.openai.continuation import TokenLimits
from serve_app.settings.paths import SCORE
from serve_app.speculation import SpeculationMeter, SpeculationReport, StepCounts


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """The engine's load in requests; ``waiting_tokens`` are the prompt tokens of requests that are not yet
    prefilled, ``kv_cache_usage`` is a share from 0 to 1."""

    running: int
    waiting: int
    waiting_tokens: int
    kv_cache_usage: float


class LoadProbe:
    """A vLLM stat logger that keeps the scheduler's newest statistics and measures the engine's speed."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._waiting = 0
        self._kv_cache_usage = 0.0
        self._most = int(client.vllm_config.scheduler_config.max_num_seqs)
        self.speed = EngineSpeed()
        speculates = client.vllm_config.speculative_config is not None
        self._meter = SpeculationMeter() if speculates else None
        if client.logger_manager is not None:
            client.logger_manager.stat_loggers.append(self)

    def load(self) -> EngineLoad:
        """The current load. The scheduler's statistics are only updated when it steps, but the count of
        unfinished requests is always current."""
        unfinished = self._client.get_num_unfinished_requests()
        waiting = min(self._waiting, unfinished)
        tokens = self._client.output_processor.get_num_queued_tokens()
        usage = self._kv_cache_usage if unfinished else 0.0
        return EngineLoad(unfinished - waiting, waiting, tokens, usage)

    @property
    def failed(self) -> bool:
        """Whether the engine's process died; Serve's health check will replace the replica."""
        return bool(self._client.errored)

    def speculation(self) -> SpeculationReport | None:
        """What speculation gained; ``None`` if the engine does not speculate."""
        return None if self._meter is None else self._meter.report()

    def record(self, scheduler_stats: Any, iteration_stats: Any = None, *args: Any, **kwargs: Any) -> None:
        if scheduler_stats is None:
            return
        self._waiting = scheduler_stats.num_waiting_reqs
        self._kv_cache_usage = scheduler_stats.kv_cache_usage
        if iteration_stats is not None:
            self._measure(iteration_stats, full=scheduler_stats.num_running_reqs >= self._most)
        if self._meter is not None and iteration_stats is not None:
            self._meter.observe(_step(scheduler_stats, iteration_stats), time.monotonic())

    def reset_speed(self) -> None:
        """Discard the measurements so far: they come from the warm-up, not from traffic."""
        self.speed = EngineSpeed()

    def _measure(self, iteration_stats: Any, *, full: bool) -> None:
        """Measure one step from vLLM's ``IterationStats`` (in seconds)."""
        tokens, ttfts = iteration_stats.prompt_token_stats.total, iteration_stats.time_to_first_tokens_iter
        now = time.monotonic()
        self.speed.prefilled(tokens, ttfts, now, full=full)
        self.speed.decoded(iteration_stats.inter_token_latencies_iter, now)
        for finished in iteration_stats.finished_requests:
            if finished.inference_time > 0:  # else it was aborted before it ran
                self.speed.served(finished.inference_time, now)

    def log(self) -> None:
        """Part of vLLM's interface; there is nothing to print."""

    def log_engine_initialized(self) -> None:
        """Part of vLLM's interface."""

    def record_sleep_state(self, *args: Any, **kwargs: Any) -> None:
        """Part of vLLM's interface."""


def _step(scheduler_stats: Any, iteration_stats: Any) -> StepCounts:
    """The counts of one step, from vLLM's statistics."""
    drafts = scheduler_stats.spec_decoding_stats
    return StepCounts(
        decoding=len(iteration_stats.inter_token_latencies_iter),
        prefilled=len(iteration_stats.time_to_first_tokens_iter),
        drafts=drafts.num_drafts if drafts else 0,
        drafted=drafts.num_draft_tokens if drafts else 0,
        accepted=drafts.num_accepted_tokens if drafts else 0,
        longest=sum(count > 0 for count in drafts.num_draft_tokens_per_pos) if drafts else 0,
        goes_on=scheduler_stats.num_running_reqs > 0,
    )


def load_probe(server: Any) -> LoadProbe:
    """A probe on the engine of a started ``LLMServer``."""
    return LoadProbe(server.engine._engine_client)


def max_num_seqs(server: Any) -> int:
    """The most requests that the engine runs at once."""
    return int(server.engine._engine_client.vllm_config.scheduler_config.max_num_seqs)


def max_num_batched_tokens(server: Any) -> int:
    """The most tokens that one step processes."""
    return int(server.engine._engine_client.vllm_config.scheduler_config.max_num_batched_tokens)


def kv_cache_tokens(server: Any) -> int:
    """The number of tokens that the KV cache holds; 0 if unknown."""
    cache = server.engine._engine_client.vllm_config.cache_config
    return int((cache.num_gpu_blocks or 0) * (cache.block_size or 0))


def token_limits(server: Any) -> TokenLimits:
    """The limits of an answer whose request sets none, as in vLLM's ``get_max_tokens`` and its callers."""
    model = server.engine._engine_client.vllm_config.model_config
    default = model.get_diff_sampling_param().get("max_tokens")
    named = model.generation_config not in ("auto", "vllm")
    cap = default if named else model.override_generation_config.get("max_new_tokens")
    return TokenLimits(context=int(model.max_model_len), default=default, cap=cap)


def caches_prefixes(server: Any) -> bool:
    """Whether its prefix cache is on: vLLM turns it off for models whose tokens look at later ones."""
    return bool(server.engine._engine_client.vllm_config.cache_config.enable_prefix_caching)


async def tasks(server: Any) -> tuple[str, ...]:
    """vLLM's names of what the model does, such as ``generate`` or ``embed``, and ``score`` if it can compare
    two texts."""
    from vllm.entrypoints.pooling.utils import enable_scoring_api

    client = server.engine._engine_client
    found = tuple(await client.get_supported_tasks())
    scores = enable_scoring_api(found, client.vllm_config.model_config)
    return (*found, SCORE) if scores else found


async def build_asgi_app(server: Any) -> ASGIApp:
    """vLLM's own FastAPI app on the engine of a started ``LLMServer``."""
    app: ASGIApp = await server.engine.build_asgi_app()
    return app


def tell_refusals(server: Any) -> None:
    """What a client's request did wrong is told as that, and holds nothing in the engine."""
    Refusals(server.engine._engine_client)


def resuming(server: Any) -> Resuming:
    """Lets the engine go on with answers that another one began."""
    return Resuming(server.engine._engine_client)


def vocabulary(server: Any) -> int:
    """Token ids are below this."""
    return int(server.engine._engine_client.model_config.get_vocab_size())


async def device_numbers(server: Any) -> list[int]:
    """Of each worker of an engine whose ``worker_extension_cls`` is :class:`DeviceNumber`."""
    found = await server.collective_rpc(DeviceNumber.promptly_device_number.__name__)
    return [int(number) for number in found]


async def fall_asleep(server: Any, level: int) -> None:
    """Put the engine to sleep. Running requests finish first (the public ``LLMServer.sleep`` would abort
    them). Then the weights move to host memory (level 1) or are dropped (level 2), and the KV cache is
    dropped. Requests that arrive meanwhile wait in the engine."""
    await server.engine._engine_client.sleep(level=level, mode="wait")


async def wake_up(server: Any, level: int) -> None:
    """Wake the engine from the sleep of that level. Dropped weights are read from their files again before
    the KV cache returns, because the engine resumes as soon as all of its memory is back."""
    if level == 1:
        await server.wakeup()
        return
    await server.wakeup(tags=["weights"])
    await server.collective_rpc("reload_weights")
    await server.wakeup(tags=["kv_cache"])


def shut_down(server: Any) -> None:
    """End the engine's processes now instead of when this process exits."""
    server.engine._engine_client.shutdown()
