"""Settings of a model: what clients can name, and what serves it."""

from __future__ import annotations

from typing import Self

from pydantic import Field, field_validator, model_validator

from serve_app.settings.base import Frozen
from serve_app.settings.engine import AutoscalingSettings, EngineSettings
from serve_app.settings.policies import known_policy
from serve_app.settings.upstream import UpstreamSettings

MANAGED_ONLY = frozenset({"replicas", "revision"})
"""Of no use to a model that only external upstreams serve."""


class HedgeSettings(Frozen):
    """Ask a second member when the first one is slow to begin a stream; the first to answer wins."""

    max_share: float = Field(gt=0, le=0.5, description="At most this share of the streams is hedged.")
    quantile: float = Field(
        default=0.95,
        ge=0.5,
        lt=1,
        description="Hedge when no byte came by this quantile of the model's TTFT.",
    )


class ModelSettings(Frozen):
    """One model that clients can name, and what serves it: managed replicas (`source` and `engine`), external
    upstreams, or both."""

    id: str = Field(min_length=1, description="The name clients use in `model`.")
    source: str | None = Field(default=None, min_length=1, description="Hub id or folder of the weights.")
    revision: str | None = None
    engine: EngineSettings | None = None
    replicas: int | AutoscalingSettings = 1
    upstreams: tuple[UpstreamSettings, ...] = Field(default=(), strict=False)
    max_requests_per_replica: int | None = Field(
        default=None,
        ge=1,
        description="More than this wait at the gateway; default: the engine's `max_num_seqs`.",
    )
    routing: str | None = Field(default=None, description="Routing policy; default: `gateway.routing`.")
    hedge: HedgeSettings | None = Field(default=None, description="Off unless given.")
    drain_timeout_s: float = Field(default=120.0, ge=0, description="For running answers at shutdown.")
    cache: bool = Field(default=True, description="Whether answers of this model are cached.")

    @field_validator("routing")
    @classmethod
    def _known_policy(cls, name: str | None) -> str | None:
        return name if name is None else known_policy(name)

    @model_validator(mode="after")
    def _is_served(self) -> Self:
        if (self.source is None) != (self.engine is None):
            missing = "source" if self.source is None else "engine"
            raise ValueError(f"`{missing}` is missing: managed replicas need `source` and `engine`")
        if self.engine is None and not self.upstreams:
            raise ValueError("nothing serves this model: give `source` and `engine`, or `upstreams`")
        unused = sorted(self.model_fields_set & MANAGED_ONLY) if self.engine is None else []
        if unused:
            raise ValueError(f"`{unused[0]}` is for managed replicas, but there is no `engine`")
        if isinstance(self.replicas, int) and self.replicas < 1:
            raise ValueError("`replicas` must be at least 1")
        names = [upstream.name for upstream in self.upstreams]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"upstream name given twice: {', '.join(twice)}")
        return self

    @property
    def managed_engine(self) -> EngineSettings:
        """The engine of the managed replicas; only asked where there are some."""
        assert self.engine is not None, f"model {self.id!r} has no managed replicas"
        return self.engine

    @property
    def managed_source(self) -> str:
        """The weights of the managed replicas; only asked where there are some."""
        assert self.source is not None, f"model {self.id!r} has no managed replicas"
        return self.source
