"""A chat that the gateway wrote itself, without what only vLLM knows: vendors refuse unknown fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

KNOWN = frozenset(
    {
        "frequency_penalty",
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "metadata",
        "model",
        "n",
        "parallel_tool_calls",
        "prediction",
        "presence_penalty",
        "prompt_cache_key",
        "reasoning_effort",
        "response_format",
        "safety_identifier",
        "seed",
        "service_tier",
        "stop",
        "store",
        "stream",
        "stream_options",
        "temperature",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "user",
        "verbosity",
    }
)
"""OpenAI's fields of a chat besides ``messages``, as far as text needs them."""

TAKES_EFFORT = re.compile(r"(?:.*/)?(?:o\d|gpt-5|gpt-oss)")
"""The names of models that have a ``reasoning_effort``. Others refuse it, and agents always send it."""

EFFORTS = {"max": "high", "xhigh": "high"}
"""Efforts that OpenAI's models do not know, each with the one to send instead."""

LONGEST_USER = 64
"""Characters of ``user`` that OpenAI accepts; agents send whole JSON objects."""


def vendor_fields(fields: Mapping[str, Any], served_as: str) -> dict[str, Any]:
    """The fields for a server that is not vLLM. ``served_as``: its name of the model."""
    kept = {name: value for name, value in fields.items() if name in KNOWN}
    kept["messages"] = [
        {name: value for name, value in message.items() if name != "reasoning"}
        for message in fields["messages"]
    ]
    effort = kept.pop("reasoning_effort", None)
    if effort is not None and TAKES_EFFORT.match(served_as):
        kept["reasoning_effort"] = EFFORTS.get(effort, effort)
    if len(kept.get("user") or "") > LONGEST_USER:
        del kept["user"]
    return kept
