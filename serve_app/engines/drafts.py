"""Checks of a draft beyond the planner's: its depth, and whether two tokenizers have the same vocabulary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from serve_app.planning.architecture import Architecture
from serve_app.planning.problems import Problem
from serve_app.settings import SpeculationSettings

SAME_SHARE = 0.99
"""Share of the target's tokens that must have the same id: reserved and control tokens often differ."""

MEDUSA_HEADS = ("medusa_num_heads", "num_heads")


def check_depth(
    where: str, speculation: SpeculationSettings, target: Architecture, draft: Mapping[str, Any] | None
) -> Iterator[Problem]:
    """Check that the draft can propose the configured number of tokens. ``where`` is the engine's path in
    messages, ``draft`` the draft's own ``config.json``, if it has one."""
    asked = speculation.num_speculative_tokens
    setting = f"{where}.speculation.num_speculative_tokens"
    if speculation.method == "mtp" and draft is None:
        layers = target.mtp_layers
        if layers and asked > layers and asked % layers:
            reason = f"{target.name} predicts {layers} tokens at a time"
            yield Problem(setting, asked, reason, f"use {layers} or a multiple of it")
    heads = _heads(draft or {}) if speculation.method == "medusa" else None
    if heads is not None and asked > heads:
        yield Problem(
            setting, asked, f"the draft has {heads} heads, one for each token", f"use at most {heads}"
        )


def vocabulary_of(tokenizer: Mapping[str, Any]) -> dict[str, int]:
    """Token to id, from a parsed ``tokenizer.json``; empty if its vocabulary has an unknown form."""
    model = tokenizer.get("model")
    entries = model.get("vocab") if isinstance(model, Mapping) else None
    if isinstance(entries, Mapping):
        found = {str(token): int(number) for token, number in entries.items()}
    elif isinstance(entries, list):  # Unigram: [token, score], in order
        found = {str(entry[0]): number for number, entry in enumerate(entries)}
    else:
        return {}
    added = tokenizer.get("added_tokens") or []
    return found | {str(token["content"]): int(token["id"]) for token in added}


def same_vocabulary(target: Mapping[str, int], draft: Mapping[str, int]) -> bool | None:
    """Whether the same ids stand for the same tokens in both; ``None`` if one vocabulary is unknown."""
    if not target or not draft:
        return None
    equal = sum(draft.get(token) == number for token, number in target.items())
    return equal >= SAME_SHARE * len(target)


def _heads(draft: Mapping[str, Any]) -> int | None:
    found = (draft.get(name) for name in MEDUSA_HEADS)
    return next((heads for heads in found if isinstance(heads, int)), None)
