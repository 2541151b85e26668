"""Reads what a guard said. No error here holds a text of the request or answer."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from serve_app.errors import GuardRefused, GuardUnavailable
from serve_app.guardrails.contract import Check, Pass, Refuse, Replace, Verdict

MOST_MESSAGE = 500
"""Characters of a guard's message that a client is told."""

CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")


class BadVerdict(ValueError):
    """What a guard said is no verdict; the message says why, without its text."""


class _Answer(msgspec.Struct, forbid_unknown_fields=True):
    verdict: Literal["pass", "replace", "refuse"]
    texts: list[str] | None = None
    message: str = ""
    code: str = "guardrail_refused"


_decoder = msgspec.json.Decoder(_Answer)


def question_of(check: Check) -> bytes:
    """The body of the request to an HTTP guard, JSON."""
    return msgspec.json.encode(
        {
            "guard": check.guard,
            "stage": check.stage.value,
            "model": check.model,
            "tenant": check.tenant,
            "endpoint": check.endpoint,
            "texts": [{"text": each.text, "kind": each.kind, "role": each.role} for each in check.texts],
        }
    )


def verdict_from_json(body: bytes, check: Check) -> Verdict:
    """Raises: BadVerdict."""
    try:
        answer = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadVerdict("its answer is no verdict in JSON") from None
    if answer.verdict == "refuse":
        return checked(Refuse(answer.message, answer.code), check)
    if answer.verdict == "replace":
        return checked(Replace(tuple(answer.texts or ())), check)
    return Pass()


def verdict_from_python(value: Any, check: Check) -> Verdict:
    """What a function returned; ``None`` is a pass. Raises: BadVerdict."""
    if value is None:
        return Pass()
    if not isinstance(value, Pass | Replace | Refuse):
        raise BadVerdict(f"it returned {type(value).__name__}: expected Pass, Replace, Refuse or None")
    return checked(value, check)


def checked(verdict: Verdict, check: Check) -> Verdict:
    """Raises: BadVerdict: it does not fit the check."""
    if isinstance(verdict, Replace):
        if len(verdict.texts) != len(check.texts):
            raise BadVerdict(f"it replaced {len(check.texts)} texts by {len(verdict.texts)}")
        if not all(isinstance(text, str) for text in verdict.texts):
            raise BadVerdict("it replaced a text by what is no text")
    if isinstance(verdict, Refuse) and not (
        isinstance(verdict.message, str) and isinstance(verdict.code, str) and CODE.fullmatch(verdict.code)
    ):
        raise BadVerdict("its code is not of lower case letters, digits and underscores, or no text")
    return verdict


def texts_after(verdict: Verdict, check: Check) -> tuple[str, ...]:
    """The texts that go on. Raises: GuardRefused."""
    if isinstance(verdict, Refuse):
        raise refusal(check.guard, verdict)
    if isinstance(verdict, Replace):
        return verdict.texts
    return tuple(each.text for each in check.texts)


def refusal(guard: str, verdict: Refuse) -> GuardRefused:
    said = f": {verdict.message[:MOST_MESSAGE]}" if verdict.message else "."
    return GuardRefused(f"The guardrail {guard!r} refused this{said}", code=verdict.code)


def unseen(guard: str, what: str) -> GuardRefused:
    """The refusal of what a guard cannot look at."""
    return GuardRefused(
        f"The guardrail {guard!r} cannot see {what} (guardrails.unseen: refuse).", code="guardrail_unseen"
    )


def unavailable(guard: str) -> GuardUnavailable:
    return GuardUnavailable(f"The guardrail {guard!r} could not judge this (guardrails.on_failure: refuse).")
