"""The size and speed of the scripted engine, and what it can do: each field is a flag too."""

from __future__ import annotations

import sys
from dataclasses import dataclass

NEVER = sys.maxsize
"""More tokens than any answer has."""


@dataclass(frozen=True)
class SimSettings:
    """Size and speed of the engine. Every field is also a flag: ``--itl-ms 20``."""

    model: str = "sim"
    max_model_len: int = 32768
    slots: int = 64
    """Requests that run at once; others wait in order of arrival."""
    max_n: int = 1
    """Largest ``n``. A request takes ``n`` slots, but only its first choice is generated."""
    prefill_ms_per_1k: float = 0.0
    """Per 1,000 prompt tokens that the prefix cache does not have. One request is prefilled at a time."""
    cache_tokens: int = 65536
    """Prompt and answer tokens that the prefix cache keeps; the least recently used leave first."""
    first_token_ms: float = 0.0
    """From the end of the prefill to the first token; several requests can be in this step at once."""
    itl_ms: float = 20.0
    itl_growth: float = 0.0
    """A token takes ``itl_ms * (1 + itl_growth * (running - 1) / slots)``."""
    tokens: int = 64
    """Words of an answer without ``max_tokens``; as in vLLM the end is one more token, without text."""
    stream_interval: int = 1
    """Tokens in a chunk of a stream, after the first, as with vLLM's ``--stream-interval``; one where a turn
    is planned."""
    stop_share: float = 0.0
    """Probability that a token ends the answer, so that answers differ in length."""
    seed: int = 0
    api_key: str = ""
    """Bearer key that ``/v1`` requires; empty: none."""
    plan: str = ""
    """Turns that the model plays for requests with tools (``plan.py``): JSON, or the name of its file."""
    prompt_tokens_details: bool = False
    """Whether ``usage`` tells the cached prompt tokens, as with vLLM's ``--enable-prompt-tokens-details``."""
    per_request_metrics: bool = False
    """Whether an answer tells how long it took here, as with vLLM's ``--enable-per-request-metrics``."""
    keep_bodies: int = 0
    """How many of the latest requests ``/sim/stats`` shows."""


DEFAULTS = SimSettings()
