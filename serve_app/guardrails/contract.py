"""What a guard is asked, and what it may say."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Stage(Enum):
    """``BEFORE``: a request, before the cache and any engine. ``AFTER``: an answer, before the client."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Text:
    """``kind``: ``text``, ``reasoning`` or ``arguments`` (of a tool call, JSON). ``role``: of the message
    that it stands in, if any."""

    text: str
    kind: str = "text"
    role: str | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """What a guard is asked to judge. ``texts`` are all texts of a request in order, or those of an answer;
    of a stream, the next part of one text. ``endpoint`` is the client's path."""

    guard: str
    stage: Stage
    model: str
    tenant: str
    endpoint: str
    texts: tuple[Text, ...]


@dataclass(frozen=True, slots=True)
class Pass:
    """The texts stay."""


@dataclass(frozen=True, slots=True)
class Replace:
    """``texts`` take the place of the check's, one for one."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refuse:
    """The request, or the rest of the answer, is refused. ``message`` is told to the client."""

    message: str = ""
    code: str = "guardrail_refused"


Verdict = Pass | Replace | Refuse
