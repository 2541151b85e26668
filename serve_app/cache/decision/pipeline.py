"""Whether a near entry answers a request: small pure steps, each with a reason.

The steps run in order; the first that objects ends the decision. A new step is one more object in the list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from serve_app.cache.cross_encoder import CrossEncoder
from serve_app.cache.decision.contract import Pair, Reading, Step, Verdict
from serve_app.cache.decision.rewording import Alone, Reworded
from serve_app.cache.decision.steps import (
    CrossEncoderStep,
    GuardStep,
    HasWords,
    SimilarEnough,
    VerifierStep,
)
from serve_app.cache.guards.registry import Guards
from serve_app.cache.normal import Normaliser

COSINE_ALONE = 0.90
"""The usual threshold if only guards follow the similarity check."""

JUDGES = (VerifierStep, CrossEncoderStep)

COSINE_BEFORE_VERIFIER = 0.75
"""A first filter, so that the verifier runs rarely; the verifier decides."""


class Decision:
    """The steps, and the first step's threshold if neither the request nor the settings name one."""

    def __init__(
        self,
        steps: Sequence[Step],
        default_threshold: float,
        guards: Guards | None = None,
        normal: Normaliser | None = None,
        *,
        asks: bool = False,
    ) -> None:
        self.default_threshold = default_threshold
        self._steps = tuple(steps)
        self._guards = guards
        self._normal = normal
        self._asks = asks

    @property
    def scale(self) -> str:
        """The name of the step that gives a hit its score; scores of two scales are not compared."""
        judges = (step.name for step in self._steps if isinstance(step, JUDGES))
        return next(judges, SimilarEnough.name)

    @property
    def record(self) -> tuple[tuple[float, float, float], ...]:
        """The verifier's results on other pairs; empty without a verifier."""
        return next((step.record for step in self._steps if isinstance(step, VerifierStep)), ())

    @property
    def measure(self) -> str:
        """The measure of the scores, saved with what the learned bound learned on it. If the measure changes,
        the bound starts from nothing."""
        reads_pairs = any(isinstance(step, VerifierStep) for step in self._steps)
        return f"{self.scale}, pairs" if reads_pairs else self.scale

    @property
    def is_slow(self) -> bool:
        """Whether a decision takes milliseconds, which is too long for an event loop's thread."""
        return any(isinstance(step, JUDGES) for step in self._steps)

    def with_threshold(self, threshold: float) -> Decision:
        """The same steps with another lowest accepted similarity."""
        return Decision(self._steps, threshold, self._guards, self._normal, asks=self._asks)

    def behind(self, step: Step) -> Decision:
        """The same steps, with ``step`` run right after the similarity check."""
        steps = (*self._steps[:1], step, *self._steps[1:])
        return Decision(steps, self.default_threshold, self._guards, self._normal, asks=self._asks)

    def reading(self, normal: Normaliser) -> Decision:
        """The same steps; the guards see the normal form of a text."""
        return Decision(self._steps, self.default_threshold, self._guards, normal, asks=self._asks)

    def asking(self) -> Decision:
        """The same steps, but an unsure objection does not end the decision: the later steps run, because the
        served model can be asked (``Verdict.unsure``)."""
        return Decision(self._steps, self.default_threshold, self._guards, self._normal, asks=True)

    def read(self, text: str) -> Reading:
        """Prepare a text for ``judge``."""
        return Reading(text, self._normal)

    def judge(
        self, question: Reading, candidate: Reading, similarity: float, threshold: float | None = None
    ) -> Verdict:
        """Decide whether the candidate's answer may be reused. ``similarity``: the cosine of the two texts'
        embeddings; ``threshold``: the lowest accepted one."""
        least = self.default_threshold if threshold is None else threshold
        pair = Pair(question, candidate, similarity, least, self._guards)
        scores: dict[str, float] = {}
        doubted: str | None = None
        for step in self._steps:
            finding = step(pair)
            if finding.score is not None:
                scores[step.name] = finding.score
            if finding.objection is not None and finding.unsure and self._asks:
                doubted = finding.objection  # the later steps say whether it is worth asking
            elif finding.objection is not None:
                return Verdict(finding.objection, scores)
        return Verdict(doubted, scores, unsure=doubted is not None)


def similarity_only(threshold: float = COSINE_ALONE) -> Decision:
    """A decision by one cosine threshold, as in most caches."""
    return Decision((SimilarEnough(), HasWords()), threshold)


def guarded(guards: Guards) -> Decision:
    """The decision for an embedder for which no verifier was trained."""
    return Decision((SimilarEnough(), HasWords(), GuardStep()), COSINE_ALONE, guards)


def reworded(guards: Guards, alone: Alone) -> Decision:
    """The decision for an embedder without a verifier, if its thresholds were measured."""
    steps = (SimilarEnough(), HasWords(), GuardStep(), Reworded(alone.most_likeness))
    return Decision(steps, alone.least_cosine, guards)


def verified(guards: Guards, encoder: CrossEncoder, strictness: str) -> Decision:
    """The decision with the shipped verifier. ``strictness``: the name of a setting for which the
    cross-encoder's card has thresholds."""
    card = encoder.card
    steps = (SimilarEnough(), HasWords(), GuardStep(), VerifierStep(encoder, card.thresholds[strictness]))
    return Decision(steps, card.least_cosine[strictness], guards)


def cross_encoded(guards: Guards, score: Callable[[str, str], float], least: float) -> Decision:
    """The decision with a configured cross-encoder. ``score``: its score of a stored and a new text;
    ``least``: the lowest score of a hit."""
    steps = (SimilarEnough(), HasWords(), GuardStep(), CrossEncoderStep(score, least))
    return Decision(steps, COSINE_BEFORE_VERIFIER, guards)
