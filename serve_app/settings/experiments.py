"""Settings of experiments: requests that are split between arms, or shadowed to a candidate."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from serve_app.settings.base import Frozen

CONTROL = "control"
"""The arm that changes nothing: every request that no other arm takes."""

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"


class RequestChange(Frozen):
    """Fields of requests that an arm sets, whatever the client sent; unset: left alone."""

    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1)
    min_p: float | None = Field(default=None, ge=0, le=1)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    repetition_penalty: float | None = Field(default=None, gt=0, le=10)
    reasoning_effort: str | None = Field(default=None, min_length=1, max_length=32)
    max_tokens: int | None = Field(
        default=None, ge=1, description="Never more than the client itself asks for."
    )


class RampStep(Frozen):
    """From a time on, a percentage."""

    at: str = Field(description="ISO 8601 with a time zone, in quotes, such as `2026-12-01T08:00:00Z`.")
    percent: float = Field(ge=0, le=100)

    @field_validator("at")
    @classmethod
    def _is_time(cls, at: str) -> str:
        try:
            has_zone = datetime.fromisoformat(at).tzinfo is not None
        except ValueError:
            has_zone = False
        if not has_zone:
            raise ValueError("expected a time such as `2026-12-01T08:00:00Z`")
        return at

    @property
    def unix(self) -> float:
        return datetime.fromisoformat(self.at).timestamp()


class ArmSettings(Frozen):
    """One arm beside the control. It changes the model, the version of the prompt, fields, or several."""

    name: str = Field(pattern=NAME)
    percent: float = Field(default=0.0, ge=0, le=100, description="Of the sessions; before its ramp begins.")
    ramp: tuple[RampStep, ...] = Field(default=(), strict=False)
    model: str | None = None
    prompt_version: str | None = Field(
        default=None, min_length=1, description="A version or label of the experiment's `prompt`."
    )
    settings: RequestChange = RequestChange()

    @property
    def most_percent(self) -> float:
        return max([self.percent, *(step.percent for step in self.ramp)])

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if self.name == CONTROL:
            raise ValueError(f"`{CONTROL}` is the arm that is not listed: give this one another name")
        if self.model is None and self.prompt_version is None and self.settings == RequestChange():
            raise ValueError(
                f"arm {self.name!r} changes nothing: give `model`, `prompt_version` or `settings`"
            )
        if list(self.ramp) != sorted(self.ramp, key=lambda step: step.unix):
            raise ValueError(f"arm {self.name!r}: the steps of `ramp` must be in order of time")
        return self


class StopSettings(Frozen):
    """When an experiment ends by itself: all requests get the control then. Unset rules hold for nothing."""

    min_requests: int = Field(
        default=100, ge=2, description="Of each arm within the window, before it is judged."
    )
    window_s: float = Field(
        default=900.0, ge=10, le=86_400, description="What is judged: the newest so many seconds."
    )
    error_share: float | None = Field(
        default=0.05,
        ge=0,
        le=1,
        description="By how much an arm's share of failed requests may exceed the control's.",
    )
    ttft_p95_ratio: float | None = Field(
        default=1.5, ge=1, description="An arm's p95 of the time to first token, of the control's."
    )
    e2e_p95_ratio: float | None = Field(default=None, ge=1, description="The same of the whole time.")
    worse: bool = Field(default=True, description="The verdict `worse` on an arm's answers ends it.")


class ShadowSettings(Frozen):
    """What a shadow may take of the fleet. Its requests never wait in a queue of the model's."""

    max_load: float = Field(
        default=0.25, gt=0, le=1, description="Used share of an engine's slots from which on it is not idle."
    )
    max_running: int = Field(default=2, ge=1, le=64, description="Shadow requests at once, in each gateway.")
    max_queued: int = Field(
        default=16, ge=1, le=1024, description="That wait for an idle engine; more are dropped."
    )
    max_queued_bytes: int = Field(default=8 << 20, ge=1, description="Of their bodies together.")
    max_wait_s: float = Field(
        default=10.0, gt=0, le=600, description="One that found no idle engine is dropped."
    )
    timeout_s: float = Field(default=120.0, gt=0, le=3600, description="Of one shadow request.")


class ExperimentSettings(Frozen):
    """One experiment. A request is in the first one of each kind that it fits."""

    name: str = Field(pattern=NAME)
    kind: Literal["split", "shadow"] = Field(
        default="split",
        description="`split`: an arm answers the client. `shadow`: the arm is asked besides, and its answer "
        "is only measured.",
    )
    models: tuple[str, ...] = Field(
        default=(), strict=False, description="Requests that name one of these; empty: all."
    )
    tenants: tuple[str, ...] = Field(default=(), strict=False, description="Only these; empty: all.")
    prompt: str | None = Field(default=None, description="Only requests that name this prompt.")
    unit: Literal["session", "request"] = Field(
        default="session",
        description="What keeps its arm: the session that a request names, else its `user`, else the user or "
        "the key that sends it; or each request by itself.",
    )
    arms: tuple[ArmSettings, ...] = Field(strict=False, min_length=1, description="Beside the control.")
    allow_choice: bool = Field(
        default=False, description="A client may choose its arm: `x-experiment: NAME=ARM`."
    )
    stop: StopSettings = StopSettings()
    shadow: ShadowSettings = ShadowSettings()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [arm.name for arm in self.arms]
        if len(set(names)) < len(names):
            raise ValueError(f"experiment {self.name!r}: two arms have the same name")
        if sum(arm.most_percent for arm in self.arms) > 100:
            raise ValueError(f"experiment {self.name!r}: the arms take more than 100 percent")
        if self.kind == "shadow" and len(self.arms) > 1:
            raise ValueError(f"experiment {self.name!r}: a shadow has one arm")
        if self.prompt is None and any(arm.prompt_version is not None for arm in self.arms):
            raise ValueError(f"experiment {self.name!r}: `prompt_version` needs `prompt`")
        return self


def wrong_experiments(
    experiments: Iterable[ExperimentSettings],
    names: Collection[str],
    own: Collection[str],
    *,
    has_prompts: bool,
) -> Iterator[str]:
    """What is wrong with experiments beside models that have these ``names``; ``own`` are those that members
    serve."""
    seen: set[str] = set()
    for each in experiments:
        if each.name in seen:
            yield f"experiments: two have the name {each.name!r}"
        seen.add(each.name)
        if each.prompt is not None and not has_prompts:
            yield f"experiment {each.name!r}: `prompt` needs the section `prompts`"
        served = own if each.kind == "shadow" else names
        for where, model, known in (
            *(("models", model, names) for model in each.models),
            *(("model", arm.model, served) for arm in each.arms if arm.model is not None),
        ):
            if model not in known:
                listed = ", ".join(sorted(known))
                yield f"experiment {each.name!r}: {where}: unknown model {model!r}; known: {listed}"
