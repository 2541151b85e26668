"""Whether vLLM can serve given LoRA adapters (vLLM 0.29's ``PEFTHelper.validate_legal``)."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from serve_app.planning.problems import Problem
from serve_app.settings.engine import LoraRank, LoraSettings

REQUIRED = ("r", "lora_alpha", "target_modules")
RANKS: tuple[int, ...] = typing.get_args(LoraRank)


@dataclass(frozen=True, slots=True)
class AdapterFacts:
    """The contents of an ``adapter_config.json`` (PEFT). ``rank`` is the largest of the adapter's
    matrices."""

    rank: int
    missing: tuple[str, ...] = ()
    kind: str = "LORA"
    uses_dora: bool = False
    bias: str = "none"
    saved_modules: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        own_ranks = [rank for rank in (config.get("rank_pattern") or {}).values() if isinstance(rank, int)]
        rank = config.get("r")
        return cls(
            rank=max([rank if isinstance(rank, int) else 0, *own_ranks]),
            missing=tuple(name for name in REQUIRED if config.get(name) is None),
            kind=str(config.get("peft_type") or "LORA").upper(),
            uses_dora=bool(config.get("use_dora")),
            bias=str(config.get("bias") or "none"),
            saved_modules=tuple(config.get("modules_to_save") or ()),
        )


def fitting_rank(rank: int) -> int | None:
    """The smallest ``max_lora_rank`` that vLLM offers for an adapter of this rank."""
    return next((known for known in RANKS if known >= rank), None)


def check_adapters(where: str, lora: LoraSettings, adapters: Mapping[str, AdapterFacts]) -> Iterator[Problem]:
    """``where`` is the engine's path in messages; ``adapters`` are the readable ones, by name."""
    highest = max((facts.rank for facts in adapters.values()), default=0)
    if highest > lora.max_lora_rank:
        fits = fitting_rank(highest)
        yield Problem(
            f"{where}.lora.max_lora_rank",
            lora.max_lora_rank,
            f"an adapter has rank {highest}",
            f"use {fits}" if fits else f"use adapters of rank {RANKS[-1]} or less",
        )
    for name, facts in adapters.items():
        for reason, works in _faults(facts):
            yield Problem(f"{where}.lora.adapters.{name}", lora.adapters[name], reason, works)


def _faults(facts: AdapterFacts) -> Iterator[tuple[str, str]]:
    if facts.kind != "LORA":
        yield (
            f"it is not a LoRA adapter but {facts.kind}",
            "merge it into the weights, or train a LoRA adapter",
        )
        return
    if facts.missing:
        yield f"its adapter_config.json lacks {', '.join(facts.missing)}", "use an adapter that PEFT saved"
    if facts.uses_dora:
        yield "it was trained with DoRA, which vLLM does not run", "train it with `use_dora=False`"
    if facts.bias != "none":
        yield "it trains biases, which vLLM does not load", "train it with `bias='none'`"
    if facts.saved_modules:
        listed = ", ".join(facts.saved_modules)
        yield (
            f"it replaces whole modules ({listed}), which vLLM does not load",
            "train without modules_to_save",
        )
