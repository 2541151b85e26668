"""Ids of responses and of their items.

An item's id contains that of its response, so a client may name an item (``item_reference``) and any gateway
finds it with one look-up, without an index of items.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "local_shell_call": "lsh",
    "local_shell_call_output": "lsho",
    "shell_call": "sh",
    "shell_call_output": "sho",
    "apply_patch_call": "apc",
    "apply_patch_call_output": "apco",
}
ITEM_ID = re.compile(r"[a-z]{2,4}_([0-9a-f]{32})([io])[0-9a-f]{4}")


@dataclass(frozen=True, slots=True)
class ItemIds:
    """The ids of one response's items. ``unique``: 32 hexadecimal digits."""

    unique: str

    @property
    def response(self) -> str:
        return f"resp_{self.unique}"

    def of_output(self, kind: str, index: int) -> str:
        return f"{PREFIXES[kind]}_{self.unique}o{index:04x}"

    def of_input(self, kind: str, index: int) -> str:
        return f"{PREFIXES.get(kind, 'item')}_{self.unique}i{index:04x}"


def response_of(item_id: str) -> str | None:
    """The id of the response that an item belongs to; ``None`` for an id that was not made here."""
    match = ITEM_ID.fullmatch(item_id)
    return None if match is None else f"resp_{match[1]}"


def is_output(item_id: str) -> bool:
    """Whether an id that was made here names an output item."""
    match = ITEM_ID.fullmatch(item_id)
    return match is not None and match[2] == "o"
