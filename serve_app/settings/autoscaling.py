"""Settings of a model whose number of replicas follows its load."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from serve_app.settings.base import Frozen

FOR_ZERO_ONLY = frozenset({"zero_after_s"})
"""Settings that only apply to a fleet that can scale to zero."""


class AutoscalingSettings(Frozen):
    """Between ``min`` and ``max`` replicas, as many as the latency objectives currently need."""

    min: int = Field(
        default=1,
        ge=0,
        description="0: an idle model has no replica, and the next request waits for one to start.",
    )
    max: int = Field(ge=1)
    ttft_objective_s: float = Field(
        default=1.0, gt=0, description="Time to the first token, from the request's arrival at the gateway."
    )
    itl_objective_s: float | None = Field(
        default=None, gt=0, description="Mean time between two tokens of a stream; default: no objective."
    )
    late_share: float = Field(
        default=0.1, gt=0, le=1, description="Share of the first tokens that may miss the objective."
    )
    worth_share: float = Field(
        default=0.05,
        ge=0,
        description="Above `late_share`, a replica is added if it would have kept this share of the "
        "window's requests from being late; 0 adds as many as needed.",
    )
    window_s: float = Field(
        default=600.0, gt=0, description="Traffic of this last period is expected to return."
    )
    hold_s: float = Field(
        default=300.0,
        ge=0,
        description="Replicas needed within this time are kept (at least for one start time): no flapping.",
    )
    zero_after_s: float = Field(
        default=300.0,
        ge=0,
        description="With `min: 0`, the last replica stops after this time without requests.",
    )
    start_s: float = Field(
        default=60.0, gt=0, description="Assumed start time of a replica, until one is measured."
    )
    sleeping: int = Field(
        default=0,
        ge=0,
        description="Up to this many replicas are put to sleep instead of being stopped: they free their "
        "GPU memory and wake in seconds.",
    )
    sleep_level: Literal[1, 2] = Field(
        default=1,
        description="Level of vLLM's sleep mode. 1: the weights wait in host memory; 2: they are dropped "
        "and read from disk again.",
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
