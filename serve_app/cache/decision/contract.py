"""The input and output of a step of the decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from serve_app.cache.guards import edit
from serve_app.cache.guards.contract import Text, analyse
from serve_app.cache.guards.registry import Guards
from serve_app.cache.normal import Normaliser


class Reading:
    """One text, analysed on first use and only once: a question is compared with several candidates.

    The guards see the text's normal form.
    """

    def __init__(self, text: str, normal: Normaliser | None = None) -> None:
        self.text = text
        self._normal = normal

    @cached_property
    def analysed(self) -> Text:
        return analyse(self.text if self._normal is None else self._normal(self.text))


@dataclass(frozen=True)
class Pair:
    """A new question and a stored one; ``similarity`` is the cosine of their embeddings, ``threshold`` the
    least that the request or the settings accept. The guards run at most once for a pair, and only up to the
    first that objects unless ``evidence`` is read."""

    question: Reading
    candidate: Reading
    similarity: float
    threshold: float
    guards: Guards | None = None

    @cached_property
    def objection(self) -> str | None:
        """The first guard that objects."""
        if self.guards is None:
            return None
        return self.guards.objection(self.question.analysed, self.candidate.analysed)

    @cached_property
    def may_be_synonyms(self) -> bool:
        """Whether the only objection is to one plain word of each text: the two may be names of one thing."""
        if self.guards is None or self.objection != edit.NAME:
            return False
        return self.guards.may_be_synonyms(self.question.analysed, self.candidate.analysed)

    @cached_property
    def evidence(self) -> Mapping[str, bool]:
        """The result of each guard, in the guards' order; ``True``: the guard objects."""
        if self.guards is None:
            return {}
        if self.objection is None:
            return self.guards.silence()
        return self.guards.evidence(self.question.analysed, self.candidate.analysed)


@dataclass(frozen=True, slots=True)
class Finding:
    """``objection``: why the stored answer must not be reused, or ``None``. ``score``: the probability
    (0 to 1) that it may be reused, from a step that estimates it. ``unsure``: the objection may be wrong, and
    the served model may be asked."""

    objection: str | None = None
    score: float | None = None
    unsure: bool = False


NOTHING_AGAINST_IT = Finding()


class Step(Protocol):
    """A step is pure, and may be called from several threads."""

    @property
    def name(self) -> str: ...

    def __call__(self, pair: Pair) -> Finding: ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """``reason``: the first objection, ``None`` for a hit. ``scores`` by the name of the step that gave
    them. ``unsure``: only a step that was not sure objected."""

    reason: str | None
    scores: Mapping[str, float] = field(default_factory=dict)
    unsure: bool = False

    @property
    def hit(self) -> bool:
        return self.reason is None
