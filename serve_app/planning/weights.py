"""Bytes of a model's weights: in its files, as an engine loads them, and on the fullest device."""

from __future__ import annotations

from dataclasses import dataclass

from serve_app.planning.architecture import Architecture
from serve_app.planning.engine_request import EngineRequest
from serve_app.planning.hardware import Device
from serve_app.planning.quantization import (
    AT_LOAD,
    AT_LOAD_EXPERTS_ONLY,
    ELEMENT_BYTES,
    FLOATS,
    STORED_BYTES,
)


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """The contents of the files: bytes of all tensors and, if the headers were read, values per stored
    type."""

    total_bytes: int
    values: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Groups:
    """Amounts (values or bytes) by how they are distributed: ``embedding`` and ``head`` are on the first and
    the last stage; ``kv`` (K and V projections) is repeated if there are fewer KV heads than ranks;
    ``replicated`` (norms, routers) is on every rank; ``experts`` are divided by tensor or by expert
    parallelism."""

    embedding: float
    head: float
    attention: float
    kv: float
    mlp: float
    experts: float
    replicated: float

    @property
    def layers(self) -> float:
        return self.attention + self.kv + self.mlp + self.experts + self.replicated

    @property
    def total(self) -> float:
        return self.embedding + self.head + self.layers


def parameters(architecture: Architecture, layers: int | None = None) -> Groups:
    """Values of the model's weights, from its shape alone: gated MLPs, no biases.

    ``layers``, if given, counts that many layers of the model's last kind (for heads that predict tokens).
    """
    shape, count = architecture, architecture.layers if layers is None else layers
    head = 0.0 if shape.is_tied else float(shape.vocab * shape.hidden)
    attention, kv = _attention(shape)
    dense, sparse = _mlp_layers(shape, count, layers is not None)
    experts = shape.experts
    per_expert = 3 * shape.hidden * experts.size if experts else 0
    return Groups(
        embedding=float(shape.vocab * shape.hidden),
        head=head,
        attention=float(attention * count),
        kv=float(kv * count),
        mlp=3.0 * shape.hidden * (shape.mlp * dense + (experts.shared_size if experts else 0) * sparse),
        experts=float(per_expert * (experts.count if experts else 0) * sparse),
        replicated=float(
            2 * shape.hidden * count + shape.hidden * (experts.count if experts else 0) * sparse
        ),
    )


def _attention(shape: Architecture) -> tuple[int, int]:
    """Values per layer: query and output projections; K and V projections."""
    latent = shape.latent
    if latent is None:
        return (
            2 * shape.hidden * shape.heads * shape.head_dim,
            2 * shape.hidden * shape.kv_heads * shape.head_dim,
        )
    width = shape.heads * (latent.plain_dim + latent.rope_dim)
    rank = latent.query_rank
    query = shape.hidden * rank + rank * width if rank else shape.hidden * width
    up = latent.rank * shape.heads * (latent.plain_dim + latent.value_dim)
    out = shape.heads * latent.value_dim * shape.hidden
    return query + up + out, shape.hidden * (latent.rank + latent.rope_dim)


def _mlp_layers(shape: Architecture, count: int, is_part: bool) -> tuple[int, int]:
    """The number of layers with a dense MLP, and of layers with experts."""
    if shape.experts is None:
        return count, 0
    dense = 0 if is_part else min(shape.experts.dense_layers, count)
    return dense, count - dense


def active_parameters(architecture: Architecture) -> float:
    """Values that one token is multiplied with: all but the embedding and the experts that it does not
    choose."""
    groups = parameters(architecture)
    experts = architecture.experts
    share = experts.active / experts.count if experts else 1.0
    head = groups.head or groups.embedding
    return head + groups.layers - groups.experts * (1 - share)


def element_bytes(architecture: Architecture, request: EngineRequest) -> float:
    """Bytes of one value in the engine's ``dtype``. ``auto`` is the checkpoint's type, with bfloat16 instead
    of float32 (``_resolve_auto_dtype``)."""
    name = architecture.dtype if request.dtype == "auto" else request.dtype
    if request.dtype == "auto" and name == "float32":
        name = "bfloat16"
    return ELEMENT_BYTES.get(name, 2.0)


def loaded(architecture: Architecture, stored: StoredWeights | None, request: EngineRequest) -> Groups:
    """Bytes of the whole model as the engine holds them.

    The total comes from the files, and its division into groups from the shape. Without files (``stored`` is
    ``None``) both come from the shape.
    """
    values = parameters(architecture)
    size = element_bytes(architecture, request)
    embedding, head = values.embedding * size, values.head * size
    body = _body_bytes(architecture, stored, request, values, size)
    scale = body / values.layers if values.layers else 0.0
    if not values.layers:
        return Groups(0.0, 0.0, 0.0, 0.0, body, 0.0, 0.0)
    groups = Groups(
        embedding,
        head,
        values.attention * scale,
        values.kv * scale,
        values.mlp * scale,
        values.experts * scale,
        values.replicated * scale,
    )
    return _quantised(groups, architecture, request, size)


def _body_bytes(
    architecture: Architecture,
    stored: StoredWeights | None,
    request: EngineRequest,
    values: Groups,
    size: float,
) -> float:
    """Bytes of all layers, without embedding and head."""
    outer = values.embedding + values.head
    quantization = architecture.quantization
    if stored is None:
        return values.layers * (size if quantization is None else quantization.bits / 8)
    # The files also hold layers that predict further tokens; only speculation loads them.
    own = (
        architecture.layers / (architecture.layers + architecture.mtp_layers) if architecture.layers else 1.0
    )
    if quantization is None:
        return max(_value_count(stored, architecture) - outer, 0.0) * own * size
    return max(stored.total_bytes - outer * ELEMENT_BYTES.get(architecture.dtype, 2.0), 0.0) * own


def _value_count(stored: StoredWeights, architecture: Architecture) -> float:
    """How many values the files hold; computed from their bytes if no header was read."""
    if not stored.values:
        return stored.total_bytes / ELEMENT_BYTES.get(architecture.dtype, 2.0)
    floats = sum(count for kind, count in stored.values if kind in FLOATS)
    others = sum(count * STORED_BYTES.get(kind, 1.0) for kind, count in stored.values if kind not in FLOATS)
    return floats + others / ELEMENT_BYTES.get(architecture.dtype, 2.0)


def _quantised(groups: Groups, architecture: Architecture, request: EngineRequest, size: float) -> Groups:
    """The bytes after quantization while loading; an already quantised checkpoint stays as it is."""
    method = request.quantization
    if method is None or architecture.quantization is not None:
        return groups
    linear = AT_LOAD.get(method, size) / size
    experts = AT_LOAD_EXPERTS_ONLY.get(method, AT_LOAD.get(method, size)) / size
    return Groups(
        groups.embedding,
        groups.head,
        groups.attention * linear,
        groups.kv * linear,
        groups.mlp * linear,
        groups.experts * experts,
        groups.replicated,
    )


def stage_layers(layers: int, stages: int) -> tuple[int, ...]:
    """Layers of each pipeline stage, as vLLM's ``get_pp_indices`` divides them: a remainder goes to the
    stages before the last, from the back."""
    parts = [layers // stages] * stages
    for position in range(2, layers % stages + 2):
        parts[-position] += 1
    return tuple(parts)


def on_device(
    groups: Groups, architecture: Architecture, request: EngineRequest, *, packs_embeddings: bool = False
) -> float:
    """Bytes on the fullest device: a rank of the stage with most layers, embedding and head included, with a
    packed copy of each if ``packs_embeddings``."""
    ranks, copies = request.tensor_parallel, 2 if packs_embeddings else 1
    expert_ranks = ranks * request.data_parallel if request.expert_parallel else ranks
    kv_ranks = 1 if architecture.latent else min(ranks, max(architecture.kv_heads, 1))
    layer = (
        (groups.attention + groups.mlp) / ranks
        + groups.kv / kv_ranks
        + groups.experts / expert_ranks
        + groups.replicated
    )
    stages = stage_layers(architecture.layers, request.pipeline_parallel) if architecture.layers else (1,)
    share = [layer * count / max(sum(stages), 1) for count in stages]
    share[0] += copies * groups.embedding / ranks
    # If embedding and head are one tensor, the last stage holds it as well.
    if groups.head or len(share) > 1:
        share[-1] += copies * (groups.head or groups.embedding) / ranks
    elif packs_embeddings:  # embedding and head share the tensor, and each packs a copy
        share[-1] += groups.embedding / ranks
    return max(share)


def packs_embeddings(architecture: Architecture, request: EngineRequest, device: Device | None) -> bool:
    """Whether the engine keeps packed copies of embedding and head.

    On a CPU vLLM packs each matrix for oneDNN if oneDNN can multiply its type: 32 bits always, 16 bits with
    bfloat16 instructions. Of embedding and head it also keeps the tensor
    (``dispatch_cpu_unquantized_gemm``)."""
    has_units = device is not None and device.has_bf16_units is True
    return request.on_cpu and (element_bytes(architecture, request) == 4 or has_units)


def adapter_bytes(architecture: Architecture, request: EngineRequest) -> float:
    """Bytes for LoRA adapters on one device: two thin matrices of the highest rank for each linear layer of
    attention and MLP, times the adapters that a batch may hold. The inner matrix is whole on each rank."""
    if request.adapters is None:
        return 0.0
    slots, rank = request.adapters
    shape, ranks = architecture, request.tensor_parallel
    heads, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    inner = 3 * shape.hidden + heads + 2 * shape.hidden + shape.mlp
    outer = heads + 2 * kv + shape.hidden + 2 * shape.mlp + shape.hidden
    layers = max(stage_layers(shape.layers, request.pipeline_parallel))
    return slots * rank * layers * (inner + outer / ranks) * element_bytes(shape, request)
