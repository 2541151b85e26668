"""Settings of auto models, and the rules for all model names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Self

from pydantic import Field, field_validator, model_validator

from serve_app.settings.base import Frozen
from serve_app.settings.model import ModelSettings
from serve_app.settings.policies import known_rule

TIER = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class AutoModelSettings(Frozen):
    """A name that stands for one of several models; a rule chooses one for each request."""

    id: str = Field(min_length=1, description="The name clients use in `model`.")
    models: tuple[str, ...] = Field(
        strict=False, min_length=1, description="Ids, aliases or adapters; the cheapest first."
    )
    rule: str = Field(
        default="cheapest-that-fits",
        description="`cheapest-that-fits`, or a function of yours as `module:function`.",
    )
    tiers: dict[str, list[str]] = Field(
        default_factory=dict,
        description="For each value of the header `x-model-tier`: which of `models` may answer.",
    )
    answer_tokens: int = Field(
        default=256, ge=1, description="Assumed answer length, in tokens, of a request that names no limit."
    )

    @field_validator("rule")
    @classmethod
    def _known_rule(cls, name: str) -> str:
        return known_rule(name)

    @model_validator(mode="after")
    def _tiers_fit(self) -> Self:
        for tier, models in self.tiers.items():
            if not TIER.fullmatch(tier):
                raise ValueError(f"tier {tier!r} in `tiers`: expected letters, digits, `_`, `.` or `-`")
            unknown = [name for name in models if name not in self.models]
            if unknown or not models:
                wrong = f"{unknown[0]!r} is not among `models`" if unknown else "names no model"
                raise ValueError(f"`tiers.{tier}`: {wrong}; expected one of: {', '.join(self.models)}")
        return self


def wrong_names(
    models: Sequence[ModelSettings], auto_models: Sequence[AutoModelSettings], embedder: str | None
) -> Iterator[str]:
    """The problems of the names that clients may use: ids, aliases, adapters and auto models share one
    namespace."""
    ids = [model.id for model in models]
    aliases = [alias for model in models for alias in model.aliases]
    adapters = [name for model in models for name in model.adapters]
    names = [*ids, *aliases, *adapters, *(auto.id for auto in auto_models)]
    if embedder is not None:
        names.append(embedder)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        yield (
            f"model id given twice: {', '.join(twice)} "
            "(ids, aliases, adapters and auto models must all differ)"
        )
    for number, auto in enumerate(auto_models):
        yield from _wrong_choice(f"auto_models[{number}].models", auto, models)


def _wrong_choice(where: str, auto: AutoModelSettings, models: Sequence[ModelSettings]) -> Iterator[str]:
    by_name = {name: model for model in models for name in (model.id, *model.aliases, *model.adapters)}
    unknown = [name for name in auto.models if name not in by_name]
    if unknown:
        yield f"`{where}`: there is no model {unknown[0]!r}; expected some of: {', '.join(by_name)}"
        return
    chosen = [by_name[name] for name in auto.models]
    priced = [model.cost_per_million_tokens is not None for model in chosen]
    if any(priced) and not all(priced):
        free = auto.models[priced.index(False)]
        yield (
            f"`{where}`: {free!r} has no `cost_per_million_tokens`, others have: give it to all of them, or "
            "to none (the list then begins with the cheapest)"
        )
