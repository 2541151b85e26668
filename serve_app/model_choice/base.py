"""The contract of a rule that chooses a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from serve_app.openai.requests import ParsedRequest


@dataclass(frozen=True, slots=True)
class Price:
    """Price per million tokens, in any one currency."""

    input: float = 0.0
    output: float = 0.0


@dataclass(frozen=True, slots=True)
class ChoiceRequest:
    """What a rule knows about a request.

    ``prompt_tokens`` is an estimate from the text's length, because nothing has been tokenized.
    ``answer_tokens`` is the request's own limit, or the default from the settings if it has none. ``headers``
    are the client's, in lower case and without its key.
    """

    prompt_tokens: float
    answer_tokens: int
    headers: Mapping[str, str]
    parsed: ParsedRequest


@dataclass(frozen=True, slots=True)
class Candidate:
    """One model that may be chosen.

    ``context`` is the most tokens of prompt and answer together, as reported by its engines (``None``: not
    known). ``can_serve``: a member can take requests; ``has_room``: one can take this request at once.
    ``can_start``: there is no member, and a request starts one (the model is scaled to zero).
    """

    name: str
    price: Price = Price()
    context: int | None = None
    can_serve: bool = True
    has_room: bool = True
    can_start: bool = False

    def cost(self, request: ChoiceRequest) -> float:
        """The cost of the request with the longest answer allowed, in millionths of the prices' currency."""
        return self.price.input * request.prompt_tokens + self.price.output * request.answer_tokens

    def holds(self, tokens: float) -> bool:
        return self.context is None or tokens <= self.context


class ModelRule(Protocol):
    """Returns the name of one of the candidates (never empty; in the order of the settings). The gateway
    calls it in its event loop for every request, so it must be a pure function that does not block."""

    def __call__(self, request: ChoiceRequest, candidates: Sequence[Candidate], /) -> str: ...
