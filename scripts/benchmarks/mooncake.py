"""Mooncake's conversation trace as requests that can be sent: arrival times, prompts that share beginnings
where the trace's do, and answer lengths.

The trace (kvcache-ai/Mooncake, FAST'25) names each 512-token block of a prompt by an id and holds no text. Here
every id becomes one fixed text of a block's length, so that prompts share exactly what they shared there.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import shake_128
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).parents[2]
TRACE = ROOT.parent / "shared" / "data" / "traces" / "mooncake_conversation.jsonl"
TRACE_BLOCK = 512
TICK_S = 3.0
"""The trace's times are rounded to this; what happened within is lost and is drawn evenly here."""
CHARS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Replay:
    """How the trace is cut down: every length (prompts, blocks, answers) is divided by ``length_scale``, and time
    runs ``speed`` times as fast. ``seed`` draws the jitter within a tick."""

    length_scale: int = 16
    speed: float = 20.0
    seed: int = 0

    def __str__(self) -> str:
        return (
            f"lengths divided by {self.length_scale}, time {self.speed:g} times as fast, each request moved "
            f"evenly within its {TICK_S:g} s tick (seed {self.seed})"
        )


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request. ``blocks`` are the ids and scaled lengths of its prompt's blocks; lengths are tokens."""

    at_s: float
    blocks: tuple[tuple[int, int], ...]
    output_tokens: int

    @property
    def prompt_tokens(self) -> int:
        return sum(tokens for _, tokens in self.blocks)

    @property
    def session(self) -> str:
        """The trace names no sessions. The first block opens every prompt, so the second says which
        conversation this is; a prompt of one block is a session of its own."""
        return str(self.blocks[min(1, len(self.blocks) - 1)][0])

    def text(self) -> str:
        return "".join(block_text(block, tokens) for block, tokens in self.blocks)

    def body(self, model: str) -> bytes:
        """A streamed chat request whose answer has the given length."""
        fields: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": self.text()}]}
        fields |= {"stream": True, "max_tokens": self.output_tokens, "ignore_eos": True}
        return msgspec.json.encode(fields)


def block_text(block: int, tokens: int) -> str:
    """A text of its own for every block, without spaces: four characters are about a token."""
    return shake_128(str(block).encode()).hexdigest(tokens * CHARS_PER_TOKEN // 2)


def arrivals(replay: Replay, path: Path = TRACE) -> list[Arrival]:
    """The trace's requests in order of arrival, the first at 0.

    Raises:
        FileNotFoundError: the trace is not on this machine.
    """
    rng = random.Random(replay.seed)
    found = sorted(_read(replay, path, rng), key=lambda arrival: arrival.at_s)
    first_s = found[0].at_s
    return [Arrival(one.at_s - first_s, one.blocks, one.output_tokens) for one in found]


def _read(replay: Replay, path: Path, rng: random.Random) -> Iterator[Arrival]:
    with path.open() as lines:
        for line in lines:
            row = json.loads(line)
            at_s = (row["timestamp"] / 1000 + rng.uniform(0, TICK_S)) / replay.speed
            lengths = _block_lengths(row["input_length"], len(row["hash_ids"]), replay.length_scale)
            output = max(1, round(row["output_length"] / replay.length_scale))
            yield Arrival(at_s, tuple(zip(row["hash_ids"], lengths, strict=True)), output)


def _block_lengths(input_length: int, blocks: int, scale: int) -> list[int]:
    """Full blocks, and what is left for the last."""
    last = input_length - TRACE_BLOCK * (blocks - 1)
    return [TRACE_BLOCK // scale] * (blocks - 1) + [max(1, round(last / scale))]
