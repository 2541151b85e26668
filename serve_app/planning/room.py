"""Whether a model, its draft and one request of full length fit into memory, and what would make them fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from serve_app.planning.architecture import Architecture
from serve_app.planning.checks import valid_tensor_parallel
from serve_app.planning.drafts import NO_DRAFT, draft_cost
from serve_app.planning.engine_request import GIB, EngineRequest
from serve_app.planning.hardware import Device
from serve_app.planning.memory import Memory, memory
from serve_app.planning.problems import Problem
from serve_app.planning.weights import Groups, StoredWeights, on_device, packs_embeddings


@dataclass(frozen=True, slots=True)
class Sizing:
    """The inputs to the memory of one device. ``groups`` are the loaded bytes of the whole model."""

    target: Architecture
    groups: Groups
    request: EngineRequest
    device: Device | None
    draft: Architecture | None = None
    draft_weights: StoredWeights | None = None

    def memory(self, *, with_draft: bool = True) -> Memory:
        extra = NO_DRAFT
        if with_draft:
            extra = draft_cost(self.target, self.groups, self.draft, self.draft_weights, self.request)
        return memory(
            self.target,
            self.request,
            self.device,
            weights=on_device(
                self.groups,
                self.target,
                self.request,
                packs_embeddings=packs_embeddings(self.target, self.request, self.device),
            ),
            draft=extra.weights,
            draft_kv_per_token=extra.kv_per_token,
        )

    def over(self, ranks: int) -> Sizing:
        """A copy with another tensor parallel size."""
        return replace(self, request=replace(self.request, tensor_parallel=ranks))


def check_memory(where: str, sizing: Sizing, context: int) -> Iterator[Problem]:
    """Weights and buffers must fit, and the KV cache must hold one request of ``context`` tokens."""
    taken = sizing.memory()
    if taken.usable is None:
        return
    if taken.fixed + (sizing.request.kv_cache_bytes or 0) > taken.usable:
        yield _too_large(where, sizing, taken, context)
    elif taken.tokens is not None and taken.tokens < context:
        yield Problem(
            f"{where}.max_model_len",
            sizing.request.max_model_len,
            f"a request of {context} tokens needs {_gib(context * taken.kv_per_token)} of KV cache per "
            f"device, and {_gib(taken.kv_bytes or 0.0)} are left ({taken.tokens} tokens)",
            _shorter_or_larger(sizing, taken, taken.tokens, context),
        )


def _too_large(where: str, sizing: Sizing, taken: Memory, context: int) -> Problem:
    request, usable = sizing.request, taken.usable or 0.0
    needs = (
        f"one device needs {_gib(taken.fixed)} before any KV cache, and {_name(sizing)} gives {_gib(usable)}"
    )
    if request.kv_cache_bytes is not None and taken.fixed < usable:
        return _large_cache(where, request, needs, int((usable - taken.fixed) // GIB))
    if taken.draft and sizing.memory(with_draft=False).fixed < usable:
        return Problem(
            f"{where}.speculation.model",
            None if request.draft is None else request.draft.model,
            f"with this draft ({_gib(taken.draft)} per device) {needs}",
            "use a smaller draft or `method: ngram`, or a larger tensor_parallel_size",
        )
    return Problem(
        f"{where}.tensor_parallel_size", request.tensor_parallel, needs, f"use {_more_room(sizing, context)}"
    )


def _large_cache(where: str, request: EngineRequest, needs: str, left_gib: int) -> Problem:
    """The KV cache's size is set, and is too large."""
    works = f"use at most {left_gib} GiB" if left_gib else "use a smaller model"
    size = request.kv_cache_bytes or 0
    if request.on_cpu:
        return Problem(f"{where}.cpu_kv_cache_gib", size // GIB, needs, works)
    return Problem(f"{where}.options.kv_cache_memory_bytes", size, needs, works)


def _shorter_or_larger(sizing: Sizing, taken: Memory, tokens: int, context: int) -> str:
    at_most = f"use at most {tokens}" if tokens >= taken.block_tokens else "no length fits"
    if sizing.request.kv_cache_bytes is not None:
        return f"{at_most}, or a larger KV cache"
    return f"{at_most}, kv_cache_dtype 'fp8', or {_more_room(sizing, context)}"


def _more_room(sizing: Sizing, tokens: int) -> str:
    """The smallest tensor parallel size that leaves a KV cache of ``tokens``; if there is none, other
    remedies."""
    if sizing.request.on_cpu:
        return "a smaller model, or a machine with more memory"
    whole = sizing.request.expert_parallel
    sizes = valid_tensor_parallel(sizing.target, whole_experts=whole) if sizing.target.is_known else []
    for ranks in sizes:
        if ranks > sizing.request.tensor_parallel and (sizing.over(ranks).memory().tokens or 0) >= tokens:
            return f"tensor_parallel_size {ranks}, a quantised checkpoint, or a device with more memory"
    return "a quantised checkpoint, pipeline_parallel_size over several nodes, or a device with more memory"


def _name(sizing: Sizing) -> str:
    return "the device" if sizing.device is None else sizing.device.name


def _gib(size: float) -> str:
    return f"{size / GIB:.2f} GiB"
