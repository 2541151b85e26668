"""What a plan costs: per hour, and per million tokens."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of all replicas, in the currency of the given price: per hour, per million answer tokens, and
    per million tokens of prompts and answers together."""

    per_hour: float
    per_million_output: float
    per_million_tokens: float


def cost(
    price_per_device_hour: float, devices: int, rate: float, prompt_tokens: float, output_tokens: float
) -> Cost:
    """``rate`` is in requests per second, tokens are means per request; ``devices`` counts all replicas'."""
    per_hour = price_per_device_hour * devices
    requests = rate * 3600.0
    return Cost(
        per_hour,
        1e6 * per_hour / max(requests * output_tokens, 1e-9),
        1e6 * per_hour / max(requests * (prompt_tokens + output_tokens), 1e-9),
    )
