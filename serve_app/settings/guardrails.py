"""Settings of guardrails."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from serve_app.settings.base import Frozen
from serve_app.settings.paths import ASKED_AS, ENGINE_PATHS, VENDOR_PATHS, VENDORS_OWN, own_name
from serve_app.settings.urls import can_be_called

FUNCTION = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
Failure = Literal["allow", "refuse"]


class HttpGuardSettings(Frozen):
    """A guard that is asked by HTTP: a POST with JSON, answered with JSON."""

    url: str
    headers_env: dict[str, str] = Field(
        default={}, description="Headers of the request, each with the environment variable of its value."
    )
    max_answer_bytes: int = Field(default=1 << 20, ge=2, description="A longer answer is a failure.")

    @field_validator("url")
    @classmethod
    def _is_url(cls, url: str) -> str:
        if not can_be_called(url):
            raise ValueError("expected a URL such as `https://guard.example.com/check`")
        return url


class MaskSettings(Frozen):
    """The built-in guard: it replaces what it finds by `[email]`, `[phone]` or `[card]`. It needs
    `pip install promptly-serve[guardrails]`."""

    kinds: tuple[Literal["email", "phone", "card"], ...] = Field(
        default=("email", "phone", "card"), strict=False, min_length=1
    )
    regions: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="Countries, such as `DE`, whose phone numbers are found without `+` and the country's "
        "code. Without any, only numbers with them are found.",
    )


class GuardrailSettings(Frozen):
    """One guard. It is exactly one of `function`, `http` and `mask`. Guards are asked in the order of the
    list; each sees the texts as the one before it left them."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    when: Literal["before", "after", "both"] = Field(
        default="both", description="Whether it looks at requests, at answers, or at both."
    )
    function: str | None = Field(
        default=None,
        description="A Python function, `module:name`; one that is not async runs in a thread.",
    )
    http: HttpGuardSettings | None = None
    mask: MaskSettings | None = None
    timeout_s: float = Field(default=2.0, gt=0, le=600, description="For one judgement.")
    on_failure: Failure = Field(
        default="refuse",
        description="What becomes of a request or answer that the guard could not judge in time or at all.",
    )
    unseen: Failure | None = Field(
        default=None,
        description="What becomes of what it cannot see: images, recordings, token ids, live audio, answers "
        "of other paths. Default: as `on_failure`.",
    )
    models: tuple[str, ...] = Field(default=(), strict=False, description="Only these; empty: all.")
    tenants: tuple[str, ...] = Field(default=(), strict=False, description="Only these; empty: all.")
    endpoints: tuple[str, ...] = Field(
        default=(), strict=False, description="Only these paths, such as `/v1/messages`; empty: all."
    )
    piece_chars: int | None = Field(
        default=None,
        ge=1,
        description="A `function` or `http` guard judges a streamed answer in pieces of so many characters, "
        "each before it is passed on. Without, it judges the whole answer once, and nothing is passed on "
        "before its end. A `mask` holds back at most a word or number, whatever this says.",
    )
    max_calls: int = Field(
        default=64, ge=1, description="Judgements at once, in each gateway; one more is a failure."
    )
    max_chars: int = Field(
        default=1_000_000, ge=1, description="A longer text is not judged, which is a failure."
    )

    @property
    def stages(self) -> tuple[str, ...]:
        return ("before", "after") if self.when == "both" else (self.when,)

    @property
    def refuses_failure(self) -> bool:
        return self.on_failure == "refuse"

    @property
    def refuses_unseen(self) -> bool:
        return (self.unseen or self.on_failure) == "refuse"

    @field_validator("endpoints")
    @classmethod
    def _are_paths(cls, endpoints: tuple[str, ...]) -> tuple[str, ...]:
        known = {*ENGINE_PATHS, *ASKED_AS, *VENDOR_PATHS, *VENDORS_OWN}
        for path in endpoints:
            if own_name(path) not in known:
                raise ValueError(f"{path!r}: expected one of {', '.join(sorted(known))}")
        return tuple(own_name(path) for path in endpoints)

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        given = [name for name in ("function", "http", "mask") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"guardrail {self.name!r}: give exactly one of `function`, `http` and `mask`"
                + (f", not {' and '.join(given)}" if given else "")
            )
        if self.function is not None and not FUNCTION.fullmatch(self.function):
            raise ValueError(f"`function` = {self.function!r}: expected `module:name`")
        return self


def wrong_guardrails(guards: tuple[GuardrailSettings, ...], models: set[str]) -> Iterator[str]:
    """Why they cannot be used. ``models``: every name that a request may use."""
    names = [guard.name for guard in guards]
    for name in names:
        if names.count(name) > 1:
            yield f"`guardrails`: the name {name!r} is given twice"
    for guard in guards:
        for model in guard.models:
            if model not in models:
                yield f"`guardrails`: {guard.name!r} is for the model {model!r}, which is not served"
