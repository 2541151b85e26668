"""Settings of a model whose number of replicas follows its load."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from serve_app.settings.base import Frozen

FOR_ZERO_ONLY = frozenset({"zero_after_s"})
"""Of no use to a fleet that never ends."""


class AutoscalingSettings(Frozen):
    """Replicas between ``min`` and ``max``, as many as keep the objectives under the traffic that comes."""

    min: int = Field(
        default=1,
        ge=0,
        description="0: an idle model has no replica, and its first request waits for a start.",
    )
    max: int = Field(ge=1)
    ttft_objective_s: float = Field(
        default=1.0, gt=0, description="Time to the first token, from the request's arrival at the gateway."
    )
    itl_objective_s: float | None = Field(
        default=None, gt=0, description="Mean time between two tokens of a stream; default: none is kept."
    )
    late_share: float = Field(
        default=0.1, gt=0, le=1, description="This share of the first tokens may come after the objective."
    )
    worth_share: float = Field(
        default=0.05,
        ge=0,
        description="Beyond `late_share`, a replica is added if it had saved this share of the window's "
        "requests from being late; 0 adds whatever it takes.",
    )
    window_s: float = Field(
        default=600.0, gt=0, description="Traffic of so long ago is still expected to come back."
    )
    hold_s: float = Field(
        default=300.0,
        ge=0,
        description="What was needed so long ago is kept (at least for the time of a start): no flapping.",
    )
    zero_after_s: float = Field(
        default=300.0,
        ge=0,
        description="With `min: 0`: without a request for so long, the last replica ends.",
    )
    start_s: float = Field(
        default=60.0, gt=0, description="How long a replica takes to start, until starts were measured."
    )
    sleeping: int = Field(
        default=0,
        ge=0,
        description="So many replicas are put to sleep in place of being stopped: they give back their GPU's "
        "memory, and wake in seconds.",
    )
    sleep_level: Literal[1, 2] = Field(
        default=1,
        description="Of vLLM's sleep mode. 1: a sleeper's weights wait in its host's memory; 2: they are "
        "dropped, and read from its disk again.",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"`min` ({self.min}) is greater than `max` ({self.max}); expected at most `max`")
        if self.sleeping > self.max:
            raise ValueError(
                f"`sleeping` ({self.sleeping}) is greater than `max` ({self.max}); expected at most `max`"
            )
        if "sleep_level" in self.model_fields_set and not self.sleeping:
            raise ValueError("`sleep_level` is for `sleeping` replicas, and `sleeping` is 0: leave it out")
        unused = sorted(self.model_fields_set & FOR_ZERO_ONLY) if self.min else []
        if unused:
            raise ValueError(f"`{unused[0]}` is for `min: 0`, and `min` is {self.min}: leave it out")
        return self
