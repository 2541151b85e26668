"""Finds, from the shape alone, what vLLM would refuse only while loading. Each check yields :class:`Problem`.

The rules are those of vLLM 0.29: ``ModelConfig.verify_with_parallel_config``, ``_verify_quantization``,
``_get_and_verify_max_len``, ``SpeculativeConfig``, and those of the linear layers (a dimension must divide
without a remainder).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from serve_app.planning.architecture import Architecture
from serve_app.planning.engine_request import Draft, EngineRequest
from serve_app.planning.hardware import Device
from serve_app.planning.problems import Problem
from serve_app.planning.quantization import (
    ANY_CHECKPOINT,
    AT_LOAD,
    AT_LOAD_EXPERTS_ONLY,
    FAMILY_ONLY,
    KV_BYTES,
    METHODS,
    PLUG_INS,
    family,
)

MAX_PARALLEL = 64


def check_shape(
    where: str, architecture: Architecture, request: EngineRequest, device: Device | None
) -> Iterator[Problem]:
    """All checks that need no memory estimate. ``where`` is the engine's path (``models[0].engine``)."""
    yield from check_parallel(where, architecture, request)
    yield from check_context(where, architecture, request)
    yield from check_quantization(where, architecture, request)
    yield from check_types(where, architecture, request, device)


def check_parallel(where: str, architecture: Architecture, request: EngineRequest) -> Iterator[Problem]:
    """Tensor parallelism must divide heads, KV heads, MLP widths and quantised blocks; each pipeline stage
    needs a layer; expert parallelism needs experts."""
    if not architecture.is_known:
        return
    ranks = request.tensor_parallel
    reason = tensor_parallel_fault(architecture, ranks, whole_experts=request.expert_parallel)
    if reason is not None:
        sizes = valid_tensor_parallel(architecture, whole_experts=request.expert_parallel)
        works = [size for size in sizes if size <= max(2 * ranks, 8)]
        listed = ", ".join(map(str, works))
        yield Problem(f"{where}.tensor_parallel_size", ranks, reason, f"use one of {listed}")
    stages = request.pipeline_parallel
    if stages > architecture.layers:
        yield Problem(
            f"{where}.pipeline_parallel_size",
            stages,
            f"{architecture.name} has {architecture.layers} layers, so some stages would be empty",
            f"use at most {architecture.layers}",
        )
    if request.expert_parallel and architecture.experts is None:
        yield Problem(
            f"{where}.enable_expert_parallel",
            True,
            f"{architecture.name} has no experts",
            "leave it out",
        )


def tensor_parallel_fault(
    architecture: Architecture, ranks: int, *, whole_experts: bool = False
) -> str | None:
    """Why the model cannot be split over ``ranks`` devices; ``None`` if it can. ``whole_experts``: expert
    parallelism does not split experts."""
    shape = architecture
    if shape.heads % ranks:
        return f"it does not divide the {shape.heads} attention heads of {shape.name}"
    if shape.latent is None and shape.kv_heads % ranks and ranks % shape.kv_heads:
        return f"it neither divides nor is a multiple of the {shape.kv_heads} KV heads of {shape.name}"
    return _width_fault(shape, ranks, whole_experts)


def _width_fault(shape: Architecture, ranks: int, whole_experts: bool) -> str | None:
    """The MLP's width must divide, and so must the blocks or groups of quantised weights that share a
    scale."""
    experts = shape.experts
    widths = {"MLP": shape.mlp} if experts is None or experts.dense_layers else {}
    if experts is not None and not whole_experts:
        widths["experts"] = experts.size
    quantization = shape.quantization
    block, group = (0, 0) if quantization is None else (quantization.block, quantization.group)
    for name, width in widths.items():
        # Grouped kernels for experts pad a remainder.
        unit = block or (group if name == "MLP" else 0)
        if width % ranks:
            return f"it does not divide the width {width} of the {name}"
        if unit and (width // ranks) % unit:
            return (
                f"it cuts the {name} (width {width}) into parts of {width // ranks}, which the quantised "
                f"blocks of {unit} do not divide"
            )
    return None


def valid_tensor_parallel(architecture: Architecture, *, whole_experts: bool = False) -> list[int]:
    """Every tensor parallel size up to 64 that the shape allows."""
    return [
        ranks
        for ranks in range(1, MAX_PARALLEL + 1)
        if tensor_parallel_fault(architecture, ranks, whole_experts=whole_experts) is None
    ]


def check_context(where: str, architecture: Architecture, request: EngineRequest) -> Iterator[Problem]:
    """``max_model_len`` must not be longer than the model's context."""
    asked, longest = request.max_model_len, architecture.context
    if request.allows_longer:
        return
    if asked is not None and longest is not None and asked > longest:
        yield Problem(
            f"{where}.max_model_len",
            asked,
            f"the context of {architecture.name} is {longest} tokens (max_position_embeddings and RoPE "
            "scaling)",
            f"use at most {longest}",
        )


def check_quantization(where: str, architecture: Architecture, request: EngineRequest) -> Iterator[Problem]:
    """The method must exist and fit the checkpoint."""
    method, setting = request.quantization, f"{where}.quantization"
    known = ", ".join(sorted(METHODS))
    if method is None:
        stored = architecture.quantization
        if stored is not None and stored.method and not _is_known(stored.method):
            yield Problem(
                setting,
                None,
                f"the checkpoint is quantised by {stored.method!r}, which vLLM does not read",
                f"use another checkpoint, or install the plug-in that reads it; vLLM has {known}",
            )
    elif method not in METHODS:
        close = difflib.get_close_matches(method, METHODS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        yield Problem(setting, method, "unknown method", f"{hint}expected one of {known}")
    else:
        yield from _check_checkpoint(setting, method, architecture)


def _is_known(stored: str) -> bool:
    return family(stored) in {family(method) for method in METHODS}


def _check_checkpoint(setting: str, method: str, architecture: Architecture) -> Iterator[Problem]:
    stored = architecture.quantization
    if method in PLUG_INS:
        return
    at_load = method in AT_LOAD or method in AT_LOAD_EXPERTS_ONLY or method in ANY_CHECKPOINT
    if stored is None:
        if not at_load:
            yield Problem(
                setting,
                method,
                f"the checkpoint of {architecture.name} is not quantised, and {method} needs one that is",
                "name a checkpoint of that kind in `source`, or use 'fp8', which quantises while loading",
            )
        return
    fits = FAMILY_ONLY.get(method)
    if method in ANY_CHECKPOINT or fits == () or family(stored.method) == family(method):
        return
    if fits is not None and family(stored.method) in fits:
        return
    yield Problem(
        setting,
        method,
        f"the checkpoint is quantised by {stored.method!r}",
        f"leave it out, or use {stored.method!r}",
    )


def check_types(
    where: str, architecture: Architecture, request: EngineRequest, device: Device | None
) -> Iterator[Problem]:
    """The KV cache's element type must exist, and ``dtype: bfloat16`` needs a device that has it."""
    if request.kv_cache_dtype not in {"auto", *KV_BYTES}:
        known = ", ".join(["auto", *KV_BYTES])
        yield Problem(
            f"{where}.kv_cache_dtype", request.kv_cache_dtype, "unknown type", f"expected one of {known}"
        )
    if request.dtype == "bfloat16" and device is not None and not device.has_bfloat16:
        yield Problem(
            f"{where}.dtype", "bfloat16", f"{device.name} has no bfloat16", "use 'float16' or 'auto'"
        )


def check_draft(
    where: str,
    target: Architecture,
    draft: Architecture | None,
    request: EngineRequest,
    same_tokenizer: bool | None,
) -> Iterator[Problem]:
    """Whether the draft fits the target. ``same_tokenizer`` is ``None`` if the tokenizers were not
    compared."""
    asked = request.draft
    if asked is None:
        return
    if asked.method == "mtp" and not target.mtp_layers and draft is None:
        yield Problem(
            f"{where}.speculation.method",
            "mtp",
            f"{target.name} has no layers that predict further tokens (num_nextn_predict_layers)",
            "use 'ngram', or 'eagle3' with a head that was trained for this model",
        )
    if draft is not None:
        yield from _check_draft_model(f"{where}.speculation", target, draft, request, same_tokenizer)


def _check_draft_model(
    where: str, target: Architecture, draft: Architecture, request: EngineRequest, same_tokenizer: bool | None
) -> Iterator[Problem]:
    asked = request.draft
    assert asked is not None
    yield from _check_vocabulary(where, asked, target, draft, same_tokenizer)
    wanted = draft.target_hidden or draft.hidden
    if asked.method in ("eagle", "eagle3") and wanted and wanted != target.hidden:
        yield Problem(
            f"{where}.model",
            asked.model,
            f"this head reads hidden states of {wanted} values, and {target.name} has {target.hidden}",
            "use the head that was trained for this model",
        )
    ranks = asked.tensor_parallel or request.tensor_parallel
    fault = tensor_parallel_fault(draft, ranks) if draft.is_known else None
    if fault is not None:
        yield Problem(
            f"{where}.draft_tensor_parallel_size",
            asked.tensor_parallel or None,
            f"{ranks} ranks: {fault}",
            "use 1",
        )


def _check_vocabulary(
    where: str, asked: Draft, target: Architecture, draft: Architecture, same_tokenizer: bool | None
) -> Iterator[Problem]:
    """A draft model must have the target's vocabulary (``verify_equal_vocab_size_if_draft_model``); a head on
    the target's hidden states may have its own (``draft_vocab_size``)."""
    if asked.method != "draft_model" or asked.maps_vocabulary:
        return
    works = (
        f"use a draft of the same family with {target.vocab} entries, or `method: ngram`, which needs none"
    )
    if draft.vocab != target.vocab:
        reason = f"its vocabulary has {draft.vocab} entries, that of {target.name} has {target.vocab}"
        yield Problem(f"{where}.model", asked.model, reason, works)
    elif same_tokenizer is False:
        yield Problem(
            f"{where}.model", asked.model, "its tokenizer gives other ids to the same tokens", works
        )
