"""`exact`, `contains` and `not-contains`."""

from __future__ import annotations

import re
import unicodedata

from serve_app.evaluation.answer import Answer
from serve_app.evaluation.case import Case
from serve_app.evaluation.scorers.base import Score, Services
from serve_app.evaluation.scorers.options import OptionScorer, shown, texts, verdict


class _Words(OptionScorer):
    ignore_case: bool = False

    def check(self, *, has_expected: bool) -> None:
        super().check(has_expected=has_expected)
        if isinstance(self.value, dict) or self.value == []:
            raise ValueError("`value`: expected text, or a list of texts")

    def same_form(self, text: str) -> str:
        text = unicodedata.normalize("NFC", text)
        return text.casefold() if self.ignore_case else text


class Exact(_Words):
    """The answer is ``value``, or one of a list. White space around both does not count."""

    async def score(self, case: Case, answer: Answer, services: Services) -> Score:
        said = self.same_form(answer.text).strip()
        wanted = [self.same_form(text).strip() for text in texts(self.wanted(case))]
        if said in wanted:
            return verdict(True, "equal")
        return verdict(False, f"expected {shown(' | '.join(wanted))}, got {shown(answer.text)}")


class _Parts(_Words):
    words: bool = False
    """Only whole words count: ``5`` is not in ``15``."""

    def has(self, text: str, part: str) -> bool:
        part = self.same_form(part)
        if not self.words:
            return part in text
        return re.search(rf"(?<!\w){re.escape(part)}(?!\w)", text) is not None


class Contains(_Parts):
    """All of ``value`` are in the answer, or with ``any`` at least one. The score is the share of them."""

    any: bool = False

    async def score(self, case: Case, answer: Answer, services: Services) -> Score:
        text, wanted = self.same_form(answer.text), texts(self.wanted(case))
        missing = [part for part in wanted if not self.has(text, part)]
        if not missing or (self.any and len(missing) < len(wanted)):
            return verdict(True, "contained")
        reason = f"{shown(missing[0])} is not in {shown(answer.text)}"
        return verdict(False, reason, 0.0 if self.any else 1 - len(missing) / len(wanted))


class NotContains(_Parts):
    """None of ``value`` is in the answer. It never compares with what the case expects."""

    def check(self, *, has_expected: bool) -> None:
        super().check(has_expected=False)

    async def score(self, case: Case, answer: Answer, services: Services) -> Score:
        text = self.same_form(answer.text)
        found = [part for part in texts(self.value) if self.has(text, part)]
        return verdict(
            not found, f"{shown(found[0])} is in {shown(answer.text)}" if found else "not contained"
        )
