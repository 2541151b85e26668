"""Settings of an engine whose prompts are prefilled by other replicas than those that decode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Literal

from pydantic import Field

from serve_app.settings.base import Frozen

KV_TRANSFER = "kv_transfer_config"
SIDE_CHANNEL_STRIDE = 500
"""Ports of one role: more replicas than a node has devices."""


class DisaggregationSettings(Frozen):
    """Prompts are prefilled by other replicas than those that decode; a prompt's KV cache travels between
    them."""

    prefill_replicas: int = Field(ge=1, description="Replicas that prefill. The model's `replicas` decode.")
    connector: Literal["nixl", "lmcache"] = Field(
        default="nixl", description="What carries the KV cache: vLLM's connector of that name."
    )
    # Below the ports that Linux gives away, above those of Serve's replicas.
    side_channel_port: int = Field(
        default=31_100,
        ge=1024,
        le=65_535 - 2 * SIDE_CHANNEL_STRIDE,
        description="`nixl`: replicas tell each other at ports from here on where a KV cache lies, one for "
        f"each device of a node; those that decode from {SIDE_CHANNEL_STRIDE} above.",
    )
    prefill_timeout_s: float = Field(
        default=30.0,
        gt=0,
        description="A prompt that takes longer elsewhere is prefilled where it is decoded.",
    )


def wrong_disaggregation(
    settings: DisaggregationSettings, *, on_cpu: bool, offloads: bool, ranks: int, options: Mapping[str, Any]
) -> Iterator[str]:
    """What does not go together with the other settings of an engine."""
    if on_cpu and settings.connector != "nixl":
        yield f"`disaggregation.connector: {settings.connector}` needs GPUs; on CPUs expected 'nixl'"
    if offloads:
        yield "`disaggregation` and `kv_offload` both take vLLM's one KV connector: leave one of the two out"
    if ranks > 1:
        yield "`disaggregation` needs `data_parallel_size: 1`: ranks would have to start and end in pairs"
    if KV_TRANSFER in options:
        yield f"`disaggregation` sets vLLM's `{KV_TRANSFER}`: take it out of `options`"


def shared_side_channels(ports: Mapping[str, int]) -> Iterator[str]:
    """Two models whose replicas could want the same port of a node; ``ports``: by model, its first one."""
    ordered = sorted(ports.items(), key=lambda item: item[1])
    for (first, low), (second, high) in pairwise(ordered):
        if high - low < 2 * SIDE_CHANNEL_STRIDE:
            yield (
                f"models {first!r} and {second!r}: their `engine.disaggregation.side_channel_port` ({low}, "
                f"{high}) must be at least {2 * SIDE_CHANNEL_STRIDE} apart"
            )
