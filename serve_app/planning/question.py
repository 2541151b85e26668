"""What a plan is asked for over HTTP: a device, a load, a target. The names are those of ``promptly plan``'s
options."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from serve_app.errors import BadRequest
from serve_app.planning.load import Load, Target
from serve_app.planning.report import Demand

USUAL_PROMPT_TOKENS = 1000.0
USUAL_OUTPUT_TOKENS = 200.0
USUAL_TTFT_MS = 1000.0
USUAL_TPOT_MS = 100.0

MOST = {"rate": 1000.0}
"""A larger load takes the search for replicas minutes."""

NUMBERS = ("rate", "prompt_tokens", "output_tokens", "ttft_ms", "tpot_ms", "price")
KNOWN = ("device", *NUMBERS)


@dataclass(frozen=True, slots=True)
class Question:
    """``device``: of the models on GPUs; ``None``: the one of the settings."""

    device: str | None
    demand: Demand


def parse_question(query: Mapping[str, str]) -> Question:
    """Empty values count as not given.

    Raises:
        BadRequest: an unknown parameter, or one that is not a number above 0.
    """
    given = {name: value.strip() for name, value in query.items() if value.strip()}
    unknown = sorted(given.keys() - set(KNOWN))
    if unknown:
        raise BadRequest(
            f"Unknown query parameter {unknown[0]!r}; known: {', '.join(KNOWN)}.", param=unknown[0]
        )
    numbers = {name: _number(name, given[name]) for name in NUMBERS if name in given}
    rate = numbers.get("rate")
    load = None
    if rate is not None:
        prompt = numbers.get("prompt_tokens", USUAL_PROMPT_TOKENS)
        load = Load(rate, prompt, numbers.get("output_tokens", USUAL_OUTPUT_TOKENS))
    target = Target(numbers.get("ttft_ms", USUAL_TTFT_MS) / 1e3, numbers.get("tpot_ms", USUAL_TPOT_MS) / 1e3)
    return Question(given.get("device"), Demand(load=load, target=target, price=numbers.get("price")))


def _number(name: str, text: str) -> float:
    most = MOST.get(name, 1e9)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= most:
        raise BadRequest(
            f"`{name}` is {text[:40]!r}; expected a number above 0, at most {most:g}.", param=name
        )
    return value
