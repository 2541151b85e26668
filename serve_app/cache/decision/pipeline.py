"""Whether a near entry answers a request: small pure steps, each with a reason.

The steps run in order; the first that objects ends the decision. A new step is an object in the list: the
request path does not change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from serve_app.cache.decision.contract import Pair, Reading, Step, Verdict
from serve_app.cache.decision.steps import CrossEncoderStep, GuardStep, HasWords, SimilarEnough, VerifierStep
from serve_app.cache.guards.registry import Guards
from serve_app.cache.verifier.verifier import Verifier
from serve_app.cache.verifier.words import WordReader

COSINE_ALONE = 0.90
"""The usual threshold where nothing but guards stands behind it."""

COSINE_BEFORE_VERIFIER = 0.75
"""Only a first sieve, so that the verifier has little to read; the verifier is the one that decides."""


class Decision:
    """The steps, and the threshold of the first one where neither request nor settings name one."""

    def __init__(
        self,
        steps: Sequence[Step],
        default_threshold: float,
        guards: Guards | None = None,
        reader: WordReader | None = None,
    ) -> None:
        self.default_threshold = default_threshold
        self._steps = tuple(steps)
        self._guards = guards
        self._reader = reader

    @property
    def scale(self) -> str:
        """What a hit's score is measured by: scores of two scales are not compared."""
        judges = (step.name for step in self._steps if isinstance(step, VerifierStep | CrossEncoderStep))
        return next(judges, SimilarEnough.name)

    @property
    def record(self) -> tuple[tuple[float, float, float], ...]:
        """How the verifier did on other pairs; empty without one."""
        return next((step.record for step in self._steps if isinstance(step, VerifierStep)), ())

    @property
    def is_slow(self) -> bool:
        """It takes milliseconds: not in an event loop's own thread."""
        return any(isinstance(step, CrossEncoderStep) for step in self._steps)

    def with_threshold(self, threshold: float) -> Decision:
        """The same steps behind another least similarity."""
        return Decision(self._steps, threshold, self._guards, self._reader)

    def read(self, text: str) -> Reading:
        """A text to be judged with others, analysed once."""
        return Reading(text, self._reader)

    def judge(
        self, question: Reading, candidate: Reading, similarity: float, threshold: float | None = None
    ) -> Verdict:
        """``similarity``: the cosine of the two texts' embeddings; ``threshold``: the least accepted one."""
        least = self.default_threshold if threshold is None else threshold
        pair = Pair(question, candidate, similarity, least, self._guards)
        scores: dict[str, float] = {}
        for step in self._steps:
            finding = step(pair)
            if finding.score is not None:
                scores[step.name] = finding.score
            if finding.objection is not None:
                return Verdict(finding.objection, scores)
        return Verdict(None, scores)


def similarity_only(threshold: float = COSINE_ALONE) -> Decision:
    """What most caches do: one cosine threshold. For comparison, and for who insists."""
    return Decision((SimilarEnough(), HasWords()), threshold)


def guarded(guards: Guards) -> Decision:
    """For an embedder that no verifier was trained on."""
    return Decision((SimilarEnough(), HasWords(), GuardStep()), COSINE_ALONE, guards)


def verified(guards: Guards, verifier: Verifier, reader: WordReader, least: float) -> Decision:
    """``least``: the verifier's probability that a hit needs."""
    steps = (SimilarEnough(), HasWords(), GuardStep(), VerifierStep(verifier, least))
    return Decision(steps, COSINE_BEFORE_VERIFIER, guards, reader)


def cross_encoded(guards: Guards, score: Callable[[str, str], float], least: float) -> Decision:
    """``score``: a cross-encoder's, of a stored and a new text; ``least``: what a hit needs."""
    steps = (SimilarEnough(), HasWords(), GuardStep(), CrossEncoderStep(score, least))
    return Decision(steps, COSINE_BEFORE_VERIFIER, guards)
