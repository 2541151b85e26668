"""Memory that speculation adds to the target's on a device: bytes of weights, and KV cache per token."""

from __future__ import annotations

from dataclasses import dataclass, replace

from serve_app.planning.architecture import Architecture
from serve_app.planning.engine_request import EngineRequest
from serve_app.planning.memory import kv_bytes_per_token
from serve_app.planning.weights import Groups, StoredWeights, element_bytes, loaded, on_device, parameters

HEAD_METHODS = frozenset({"eagle", "eagle3", "medusa"})
"""Methods whose draft is a head on the target's hidden states; it shares the target's embedding."""


@dataclass(frozen=True, slots=True)
class DraftCost:
    """Bytes on each device."""

    weights: float
    kv_per_token: float


NO_DRAFT = DraftCost(0.0, 0.0)


def draft_cost(
    target: Architecture,
    groups: Groups,
    draft: Architecture | None,
    stored: StoredWeights | None,
    request: EngineRequest,
) -> DraftCost:
    """``groups`` are the target's loaded bytes; ``draft`` and ``stored`` describe the draft's own files, if
    it has any."""
    asked = request.draft
    if asked is None:
        return NO_DRAFT
    ranks = asked.tensor_parallel or request.tensor_parallel
    own = replace(
        request, tensor_parallel=ranks, pipeline_parallel=1, quantization=None, expert_parallel=False
    )
    if draft is None:
        return _own_layers(target, groups, request) if asked.method == "mtp" else NO_DRAFT
    cached = 0.0 if asked.method == "medusa" or not draft.is_known else kv_bytes_per_token(draft, own)
    if asked.method in HEAD_METHODS:
        return DraftCost(_head_bytes(draft, stored, own) / ranks, cached)
    return DraftCost(on_device(loaded(draft, stored, own), draft, own), cached)


def _own_layers(target: Architecture, groups: Groups, request: EngineRequest) -> DraftCost:
    """The target's own layers that predict further tokens; each is as large as one of its other layers."""
    if not target.layers:
        return NO_DRAFT
    share = target.mtp_layers / target.layers
    body = replace(groups, embedding=0.0, head=0.0)
    per_token = kv_bytes_per_token(target, replace(request, pipeline_parallel=1))
    single = replace(request, pipeline_parallel=1)
    return DraftCost(on_device(body, target, single) * share, per_token * share)


def _head_bytes(draft: Architecture, stored: StoredWeights | None, request: EngineRequest) -> float:
    """The file's size; without a file, from the shape: layers, the projection of three hidden states, and
    the output layer."""
    if stored is not None:
        return float(stored.total_bytes)
    values = parameters(draft).layers + 3 * draft.hidden**2
    return (values + (draft.draft_vocab or draft.vocab) * draft.hidden) * element_bytes(draft, request)
