"""Settings of a model: its names, and what serves it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from pydantic import Field, field_validator, model_validator

from serve_app.settings.autoscaling import AutoscalingSettings
from serve_app.settings.base import Frozen
from serve_app.settings.engine import READS_THE_TEXT, EngineSettings
from serve_app.settings.paths import ENGINE_PATHS, plain_paths
from serve_app.settings.policies import known_policy
from serve_app.settings.upstream import UpstreamSettings

MANAGED_ONLY = frozenset({"replicas", "revision", "paths"})
"""Settings that do not apply to a model that only external upstreams serve."""

DROPS_WEIGHTS = 2
"""The level of vLLM's sleep mode that keeps nothing of an engine in memory."""

READ_AGAIN = ("auto", "hf", "safetensors", "fastsafetensors", "instanttensor", "mistral", "npcache", "pt")
"""Load formats of vLLM's default loader, the only one of 0.29 that can read weights into a loaded model."""

NEEDS_CACHE = ("cache_ttl_s", "cache_threshold")
"""Settings that do not apply to a model whose answers are not cached."""


class HedgeSettings(Frozen):
    """Send a stream to a second member when the first is slow to begin; the first to answer wins."""

    max_share: float = Field(gt=0, le=0.5, description="At most this share of the streams is hedged.")
    quantile: float = Field(
        default=0.95,
        ge=0.5,
        lt=1,
        description="Hedge when no byte arrived by this quantile of the model's TTFT.",
    )


class PriceSettings(Frozen):
    """What a million tokens cost, in any one currency: that of all models."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)


class ModelSettings(Frozen):
    """One model, served by managed replicas (`source` and `engine`), by external upstreams, or by both.
    It is long because its fields are."""

    id: str = Field(min_length=1, description="The name clients use in `model`.")
    aliases: tuple[str, ...] = Field(
        default=(), strict=False, description="Other names for it; answers name the `id`."
    )
    source: str | None = Field(default=None, min_length=1, description="Hub id or folder of the weights.")
    revision: str | None = None
    engine: EngineSettings | None = None
    replicas: int | AutoscalingSettings = 1
    upstreams: tuple[UpstreamSettings, ...] = Field(default=(), strict=False)
    max_requests_per_replica: int | None = Field(
        default=None,
        ge=1,
        description="Further requests wait at the gateway; default: the engine's `max_num_seqs`.",
    )
    paths: tuple[str, ...] = Field(
        default=ENGINE_PATHS,
        strict=False,
        description="Paths of managed replicas that clients may use. `/v1/messages` and `/v1/responses` are "
        "answered as chats: wherever `/v1/chat/completions` is among them.",
    )
    routing: str | None = Field(default=None, description="Routing policy; default: `gateway.routing`.")
    hedge: HedgeSettings | None = Field(default=None, description="Off unless given.")
    drain_timeout_s: float = Field(
        default=120.0,
        ge=0,
        description="Seconds for running answers when Serve stops a replica. When the whole application is "
        "stopped, `--drain` of `promptly serve` counts instead.",
    )
    cache: bool = Field(default=True, description="Whether answers of this model are cached.")
    cache_ttl_s: float | None = Field(
        default=None,
        gt=0,
        description="Lifetime of its entries where no rule matches; default: `cache.ttl_s`.",
    )
    cache_threshold: float | None = Field(
        default=None, ge=0, le=1, description="Overrides `cache.threshold`."
    )
    cost_per_million_tokens: PriceSettings | None = Field(
        default=None, description="Prices that `auto_models` compare and usage is counted by."
    )
    cost_per_device_hour: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="What an hour of one device of its replicas costs, in the same currency, for usage.",
    )

    @field_validator("paths")
    @classmethod
    def _are_paths(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        plain_paths(paths)
        return paths

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

    @model_validator(mode="after")
    def _is_offered(self) -> Self:
        for problem in _wrong_offer(self):
            raise ValueError(problem)
        return self

    @property
    def offered_paths(self) -> frozenset[str]:
        """The paths that clients may use; each member offers some of them."""
        managed = frozenset[str]() if self.engine is None else frozenset(self.paths)
        return managed.union(*(upstream.offered_paths for upstream in self.upstreams))

    @property
    def replica_bounds(self) -> tuple[int, int]:
        """The fewest and the most replicas."""
        if isinstance(self.replicas, AutoscalingSettings):
            return self.replicas.min, self.replicas.max
        return self.replicas, self.replicas

    @property
    def may_sleep(self) -> bool:
        """Whether replicas that are not needed are put to sleep."""
        return self.sleep_level > 0

    @property
    def sleep_level(self) -> int:
        """The level of vLLM's sleep mode; 0 if no replica is put to sleep."""
        if not isinstance(self.replicas, AutoscalingSettings) or not self.replicas.sleeping:
            return 0
        return self.replicas.sleep_level

    @property
    def adapters(self) -> dict[str, str]:
        """LoRA adapters, which clients use by name: name to hub id or folder."""
        if self.engine is None or self.engine.lora is None:
            return {}
        return self.engine.lora.adapters

    @property
    def managed_engine(self) -> EngineSettings:
        """The engine of the managed replicas, which must exist."""
        assert self.engine is not None, f"model {self.id!r} has no managed replicas"
        return self.engine

    @property
    def managed_source(self) -> str:
        """The weights of the managed replicas, which must exist."""
        assert self.source is not None, f"model {self.id!r} has no managed replicas"
        return self.source


def _wrong_offer(model: ModelSettings) -> Iterator[str]:
    if any(not alias for alias in model.aliases):
        yield "an alias in `aliases` is empty"
    if model.adapters and model.upstreams:
        yield (
            "`upstreams` do not know the adapters of `engine.lora`: give them a model of their own, with "
            "another `id`"
        )
    if model.may_sleep and model.engine is not None and model.engine.disaggregation is not None:
        yield "`replicas.sleeping` does not work with `engine.disaggregation`: leave one of the two out"
    if model.sleep_level == DROPS_WEIGHTS and model.engine is not None:
        yield from _not_read_again(model.engine)
    for name in NEEDS_CACHE:
        if not model.cache and getattr(model, name) is not None:
            yield f"`{name}` has no effect with `cache: false`: leave one of the two out"


def _not_read_again(engine: EngineSettings) -> Iterator[str]:
    """The settings whose data vLLM drops with the weights but does not read again with them."""
    level = "`replicas.sleep_level: 2` drops all weights, and vLLM reads only the model's own again"
    if engine.lora is not None:
        yield f"{level}: use 1, or leave out `engine.lora`"
    if engine.speculation is not None and engine.speculation.method not in READS_THE_TEXT:
        without = " or ".join(sorted(READS_THE_TEXT))
        yield f"{level}: use 1, or an `engine.speculation` without weights ({without})"
    options = engine.options or {}
    if options.get("cpu_offload_gb"):
        yield f"{level}, and none that are offloaded: use 1, or leave out `options.cpu_offload_gb`"
    load_format = options.get("load_format", "auto")
    if load_format not in READ_AGAIN:
        yield f"{level}, from the load formats {', '.join(READ_AGAIN)}: use 1, or leave out {load_format!r}"
