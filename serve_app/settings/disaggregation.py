"""Settings of an engine whose prompts are prefilled by other replicas than those that decode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field

from serve_app.settings.base import Frozen

KV_TRANSFER = "kv_transfer_config"


class DisaggregationSettings(Frozen):
    """Prefill and decode on replicas of their own; the KV cache of a prompt travels between them."""

    prefill_replicas: int = Field(ge=1)
    decode_replicas: int = Field(ge=1)
    connector: Literal["nixl", "lmcache", "mooncake"] = Field(
        default="nixl", description="What carries the KV cache: vLLM's connector of that name."
    )


def wrong_disaggregation(*, on_cpu: bool, offloads: bool, options: Mapping[str, Any]) -> Iterator[str]:
    """What does not go together with the other settings of an engine."""
    if on_cpu:
        yield "`disaggregation` needs GPUs, between whose memories the KV cache is copied: leave it out"
    if offloads:
        yield "`disaggregation` and `kv_offload` both take vLLM's one KV connector: leave one of the two out"
    if KV_TRANSFER in options:
        yield f"`disaggregation` sets vLLM's `{KV_TRANSFER}`: take it out of `options`"
