"""Settings of disaggregated prefill: some replicas of an engine prefill prompts, others decode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Literal

from pydantic import Field

from serve_app.settings.base import Frozen

KV_TRANSFER = "kv_transfer_config"
SIDE_CHANNEL_STRIDE = 500
"""Ports for each role on a node; a node has fewer devices."""


class DisaggregationSettings(Frozen):
    """Disaggregated prefill: some replicas prefill prompts, others decode, and a prompt's KV cache is sent
    from one to the other."""

    prefill_replicas: int = Field(ge=1, description="Replicas that prefill. The model's `replicas` decode.")
    connector: Literal["nixl", "lmcache"] = Field(
        default="nixl", description="vLLM's connector that transfers the KV cache."
    )
    # Below Linux's ephemeral ports, above those of Serve's replicas.
    side_channel_port: int = Field(
        default=31_100,
        ge=1024,
        le=65_535 - 2 * SIDE_CHANNEL_STRIDE,
        description="`nixl`: first port at which replicas exchange KV cache addresses, one port for each "
        f"device of a node; decoding replicas start {SIDE_CHANNEL_STRIDE} above.",
    )
    prefill_timeout_s: float = Field(
        default=30.0,
        gt=0,
        description="After this time the decoding replica prefills the prompt itself.",
    )


def wrong_disaggregation(
    settings: DisaggregationSettings, *, on_cpu: bool, offloads: bool, ranks: int, options: Mapping[str, Any]
) -> Iterator[str]:
    """The conflicts of these settings with the engine's other settings."""
    if on_cpu and settings.connector != "nixl":
        yield f"`disaggregation.connector: {settings.connector}` needs GPUs; on CPUs expected 'nixl'"
    if offloads:
        yield "`disaggregation` and `kv_offload` both take vLLM's one KV connector: leave one of the two out"
    if ranks > 1:
        yield "`disaggregation` needs `data_parallel_size: 1`: ranks would have to start and end in pairs"
    if KV_TRANSFER in options:
        yield f"`disaggregation` sets vLLM's `{KV_TRANSFER}`: take it out of `options`"


def shared_side_channels(ports: Mapping[str, int]) -> Iterator[str]:
    """The pairs of models whose replicas could use the same port of a node. ``ports``: each model's first
    port."""
    ordered = sorted(ports.items(), key=lambda item: item[1])
    for (first, low), (second, high) in pairwise(ordered):
        if high - low < 2 * SIDE_CHANNEL_STRIDE:
            yield (
                f"models {first!r} and {second!r}: their `engine.disaggregation.side_channel_port` ({low}, "
                f"{high}) must be at least {2 * SIDE_CHANNEL_STRIDE} apart"
            )
