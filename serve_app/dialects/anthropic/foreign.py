"""Blocks that are not known here, where they are no new question: in an earlier turn, which each later
request repeats, or in what a tool gave. A refusal there would end the session, so a note stands for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from serve_app.dialects.anthropic.blocks import (
    AssistantBlock,
    DocumentSource,
    ImageSource,
    ResultBlock,
    UserBlock,
)


def _tags(union: Any) -> frozenset[str]:
    return frozenset(kind.__struct_config__.tag for kind in get_args(union))


KNOWN = {"user": _tags(UserBlock), "assistant": _tags(AssistantBlock)}
IN_RESULTS = _tags(ResultBlock)
SOURCES = {"image": _tags(ImageSource), "document": _tags(DocumentSource)}


def with_notes(fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """The request with notes; every block keeps its number. ``None``: there is nothing to note."""
    turns = fields.get("messages")
    if not isinstance(turns, list):
        return None
    noted = [_turn(turn, is_last=number == len(turns) - 1) for number, turn in enumerate(turns)]
    return None if noted == turns else {**fields, "messages": noted}


def _turn(turn: Any, *, is_last: bool) -> Any:
    if not isinstance(turn, dict):
        return turn
    content, known = turn.get("content"), KNOWN.get(str(turn.get("role")))
    if known is None or not isinstance(content, list):
        return turn
    return {**turn, "content": [_block(block, known, is_new=is_last) for block in content]}


def _block(block: Any, known: frozenset[str], *, is_new: bool) -> Any:
    if not isinstance(block, dict):
        return block
    inner = block.get("content")
    if block.get("type") == "tool_result" and isinstance(inner, list):
        return {**block, "content": [_block(each, IN_RESULTS, is_new=False) for each in inner]}
    return block if is_new or _is_known(block, known) else _note(block)


def _is_known(block: Mapping[str, Any], known: frozenset[str]) -> bool:
    kind, source = block.get("type"), block.get("source")
    if not isinstance(kind, str):
        return True  # wrong, which the types report
    if kind in SOURCES and isinstance(source, dict) and isinstance(source.get("type"), str):
        return source["type"] in SOURCES[kind]
    return kind in known


def _note(block: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "text", "text": f"[{block['type'][:40]}: this server cannot read it.]"}
