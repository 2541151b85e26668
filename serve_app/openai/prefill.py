"""Requests to prefill engines: whether a prompt can be prefilled remotely, and the body to send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serve_app.openai.requests import Endpoint

KV_TRANSFER_PARAMS = "kv_transfer_params"
"""Field of vLLM's requests and answers: the location of a prompt's KV cache. Clients must never set it: it
addresses an engine's memory, which holds other clients' prompts."""

OF_THE_ANSWER = frozenset({"min_tokens", "logprobs", "top_logprobs", "ignore_eos", KV_TRANSFER_PARAMS})
"""Fields that a prefill engine does not need, or that are wrong for an answer of one token."""

NUMBERS_OF_ANSWERS = ("n", "best_of")
NEEDS_THE_WHOLE_PROMPT = ("prompt_logprobs", "echo", "prompt_embeds", "use_beam_search")


def prefill_request(endpoint: Endpoint, body: Mapping[str, Any]) -> dict[str, Any] | None:
    """The body for the prefill engine; ``None`` if the decode engine must prefill itself: the answer
    describes the prompt, the body has several prompts or is invalid, or several answers need the KV cache,
    which is sent only once."""
    several = any(body.get(name) not in (None, 1) for name in NUMBERS_OF_ANSWERS)
    if several or any(_is_asked(body.get(name)) for name in NEEDS_THE_WHOLE_PROMPT):
        return None
    if endpoint is Endpoint.COMPLETIONS and not _is_one_prompt(body.get("prompt")):
        return None
    return {name: value for name, value in body.items() if name not in OF_THE_ANSWER}


def _is_asked(value: Any) -> bool:
    """Whether a field is set. 0 counts: ``prompt_logprobs: 0`` asks for the prompt tokens' own
    log-probabilities."""
    return value is not None and value is not False


def _is_one_prompt(prompt: Any) -> bool:
    """Whether it is one text, or the token ids of one text."""
    if isinstance(prompt, list):
        return bool(prompt) and all(isinstance(token, int) for token in prompt)
    return isinstance(prompt, str)
