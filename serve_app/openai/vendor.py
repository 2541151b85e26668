"""A chat that the gateway wrote itself, without what only vLLM knows: vendors refuse unknown fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

VLLMS_OWN = frozenset(
    {
        "top_k",
        "chat_template_kwargs",
        "continue_final_message",
        "add_generation_prompt",
        "priority",
        "kv_transfer_params",
        "ec_transfer_params",
        "vllm_xargs",
    }
)
LONGEST_USER = 64
"""Characters of ``user`` that OpenAI accepts; agents send whole JSON objects."""


def vendor_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields for a server that is not vLLM."""
    kept = {name: value for name, value in fields.items() if name not in VLLMS_OWN}
    kept["messages"] = [
        {name: value for name, value in message.items() if name != "reasoning"}
        for message in fields["messages"]
    ]
    if len(kept.get("user") or "") > LONGEST_USER:
        del kept["user"]
    return kept
