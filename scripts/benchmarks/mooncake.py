"""Mooncake's conversation trace as requests: arrival times, prompts that share prefixes as in the trace, and
answer lengths.

The trace (kvcache-ai/Mooncake, FAST'25) names each 512-token block of a prompt by an id and has no text. Here
each id becomes one fixed text of a block's length, so prompts share exactly what they share in the trace.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import shake_128
from pathlib import Path

from benchmarks.load import Request, chat_request

TRACE = Path(__file__).parents[3] / "shared" / "data" / "traces" / "mooncake_conversation.jsonl"
TRACE_BLOCK = 512
TICK_S = 3.0
"""The trace's times are rounded to multiples of this; times within a tick are drawn evenly here."""
CHARS_PER_TOKEN = 4
SESSION_HEADER = "x-session-id"


@dataclass(frozen=True, slots=True)
class Replay:
    """How the trace is scaled: every length (prompts, blocks, answers) is divided by ``length_scale``, and
    time runs ``speed`` times as fast. ``seed`` draws the jitter within a tick."""

    length_scale: int = 16
    speed: float = 10.0
    seed: int = 0

    def __str__(self) -> str:
        return (
            f"lengths divided by {self.length_scale}, time {self.speed:g} times as fast, "
            f"each request moved evenly within its {TICK_S:g} s tick"
        )


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request. ``blocks`` are the ids and scaled lengths of its prompt's blocks, in tokens."""

    at_s: float
    blocks: tuple[tuple[int, int], ...]
    output_tokens: int

    @property
    def prompt_tokens(self) -> int:
        return sum(tokens for _, tokens in self.blocks)

    @property
    def session(self) -> str:
        """The name of the conversation. The trace has no sessions, and the first block starts every prompt,
        so the second block identifies the conversation; all prompts of one block are one conversation."""
        return str(self.blocks[min(1, len(self.blocks) - 1)][0])

    def request(self, model: str) -> Request:
        """A streamed chat with an answer of the given length."""
        text = "".join(block_text(block, tokens) for block, tokens in self.blocks)
        chat = chat_request(model, text, self.output_tokens, ignore_eos=True)
        return replace(chat, headers={SESSION_HEADER: self.session})


def block_text(block: int, tokens: int) -> str:
    """A fixed text for each block, without spaces: four characters are about a token."""
    return shake_128(str(block).encode()).hexdigest(tokens * CHARS_PER_TOKEN // 2)


def arrivals(replay: Replay, path: Path = TRACE) -> list[Arrival]:
    """The trace's requests in order of arrival, the first at 0."""
    rng = random.Random(replay.seed)
    found = sorted(_read(replay, path, rng), key=lambda arrival: arrival.at_s)
    return [replace(arrival, at_s=arrival.at_s - found[0].at_s) for arrival in found]


def tokens_per_s(requests: Sequence[Arrival]) -> float:
    """Prompt tokens that arrive per second, on average."""
    return sum(request.prompt_tokens for request in requests) / requests[-1].at_s


def _read(replay: Replay, path: Path, rng: random.Random) -> Iterator[Arrival]:
    with path.open() as lines:
        for line in lines:
            row = json.loads(line)
            at_s = (row["timestamp"] / 1000 + rng.uniform(0, TICK_S)) / replay.speed
            lengths = _block_lengths(row["input_length"], len(row["hash_ids"]), replay.length_scale)
            output = max(1, round(row["output_length"] / replay.length_scale))
            yield Arrival(at_s, tuple(zip(row["hash_ids"], lengths, strict=True)), output)


def _block_lengths(input_length: int, blocks: int, scale: int) -> list[int]:
    """The sizes of the blocks: all are full except the last, which has the rest."""
    last = input_length - TRACE_BLOCK * (blocks - 1)
    return [TRACE_BLOCK // scale] * (blocks - 1) + [max(1, round(last / scale))]
