"""Requests whose prompt another engine may prefill than the one that decodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serve_app.openai.requests import Endpoint

KV_TRANSFER_PARAMS = "kv_transfer_params"
"""Field of vLLM's requests and answers: where the KV cache of a prompt lies. Never a client's to set: it
names memory of an engine, and so what others asked."""

OF_THE_ANSWER = frozenset({"min_tokens", "logprobs", "top_logprobs", "ignore_eos", KV_TRANSFER_PARAMS})
"""Of no use to an engine that only prefills, or wrong for an answer of one token."""

NUMBERS_OF_ANSWERS = ("n", "best_of")
NEEDS_THE_WHOLE_PROMPT = ("prompt_logprobs", "echo", "prompt_embeds", "use_beam_search")


def prefill_request(endpoint: Endpoint, body: Mapping[str, Any]) -> dict[str, Any] | None:
    """What to ask the engine that prefills; ``None`` where the one that decodes must do it all: it answers
    about the prompt itself, the body has several prompts, or is no valid one, or several answers want the KV
    cache, which is handed over once."""
    several = any(body.get(name) not in (None, 1) for name in NUMBERS_OF_ANSWERS)
    if several or any(_is_asked(body.get(name)) for name in NEEDS_THE_WHOLE_PROMPT):
        return None
    if endpoint is Endpoint.COMPLETIONS and not _is_one_prompt(body.get("prompt")):
        return None
    return {name: value for name, value in body.items() if name not in OF_THE_ANSWER}


def _is_asked(value: Any) -> bool:
    """0 is a wish as well: no further log-probability beside the prompt's own."""
    return value is not None and value is not False


def _is_one_prompt(prompt: Any) -> bool:
    """A text, or the token ids of one."""
    if isinstance(prompt, list):
        return bool(prompt) and all(isinstance(token, int) for token in prompt)
    return isinstance(prompt, str)
