"""What a plan says of its numbers: how the model is divided, and what the estimate leaves out."""

from __future__ import annotations

from collections.abc import Iterator

from serve_app.planning.architecture import Architecture
from serve_app.planning.engine_request import EngineRequest
from serve_app.planning.hardware import Device
from serve_app.planning.quantization import AT_LOAD, AT_LOAD_EXPERTS_ONLY
from serve_app.planning.weights import stage_layers

GPUS_PER_NODE = 8


def notes(
    architecture: Architecture,
    request: EngineRequest,
    device: Device | None,
    without_files: bool,
    draft: Architecture | None,
) -> Iterator[str]:
    """How the model is divided, and what the estimate leaves out; one sentence each."""
    yield from _division(architecture, request)
    yield from _precision(architecture, request, device)
    if without_files:
        yield "No safetensors files: their size is computed from the shape."
    if not architecture.is_known:
        yield (
            f"{architecture.name}: the config does not give heads, layers and sizes; KV cache, speed and "
            "division are unknown, and the plan assumes that the weights divide evenly."
        )
    if architecture.sliding_window and architecture.is_known:
        yield (
            f"Sliding windows of {architecture.sliding_window} tokens are not subtracted: the KV cache may "
            "hold more than this plan says."
        )
    if architecture.cached_layers < architecture.layers:
        yield (
            f"{architecture.layers - architecture.cached_layers} of {architecture.layers} layers keep a "
            "state of fixed size, which is not counted."
        )
    if architecture.has_vision:
        yield "The vision encoder's activations and cache are not counted."
    if request.prefill_replicas:
        yield (
            f"Prompts are prefilled by {request.prefill_replicas} more replicas: times and replicas are "
            "computed as if each replica did both."
        )
    if draft is not None and request.draft is not None and request.draft.maps_vocabulary:
        yield "The draft's vocabulary is mapped to the target's: only tokens of both can be proposed."


def _division(architecture: Architecture, request: EngineRequest) -> Iterator[str]:
    if not architecture.is_known:
        return
    ranks, heads = request.tensor_parallel, architecture.kv_heads
    if architecture.latent is not None and ranks > 1:
        yield f"Latent attention: each of the {ranks} ranks holds the whole KV cache."
    elif ranks > heads:
        yield f"{heads} KV heads over {ranks} ranks: each is held {ranks // heads} times."
    if ranks > GPUS_PER_NODE:
        yield f"{ranks} ranks span several nodes: the times do not include the network between them."
    if request.pipeline_parallel > 1:
        parts = ", ".join(map(str, stage_layers(architecture.layers, request.pipeline_parallel)))
        yield f"Pipeline stages of {parts} layers: they add throughput, but make no token faster."
    experts = architecture.experts
    if experts is not None:
        spread = request.tensor_parallel * request.data_parallel
        each = (
            f"{-(-experts.count // spread)} on each of {spread} ranks"
            if request.expert_parallel
            else "all on each"
        )
        yield f"{experts.count} experts, {experts.active} per token, {each}."


def _precision(architecture: Architecture, request: EngineRequest, device: Device | None) -> Iterator[str]:
    method = request.quantization
    if method in AT_LOAD_EXPERTS_ONLY and architecture.experts is None:
        yield f"quantization {method!r} changes experts only, and this model has none."
    eight_bit = method in AT_LOAD and "fp8" in method
    if eight_bit and device is not None and not device.is_cpu and not device.fp8_tflops:
        yield f"{device.name} has no FP8 units: the weights are kept in 8 bits and multiplied in 16."
    stored = architecture.quantization
    is_int8 = stored is not None and stored.method == "compressed-tensors" and stored.bits == 8
    if is_int8 and device is not None and device.has_vnni is False:
        yield "This CPU has no VNNI instructions: INT8 weights are much slower here than 16-bit ones."
    if architecture.dtype == "bfloat16" and request.dtype == "auto" and device and not device.has_bfloat16:
        yield f"{device.name} has no bfloat16: vLLM uses float16 instead."
