"""The cache's entries in a backup, and back, through a running endpoint: the store has one process at a time,
and vectors are made again by the embedder that is there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from deployments.cli.endpoint import Administrator, TooLarge

PATH = "/admin/cache/entries"
SCHEMA = 1
"""Version of the lines that the endpoint exports."""

BATCH_BYTES = 500_000
"""Size of one request: an endpoint's bound on bodies is a megabyte by default. One longer line is a request
of its own."""

SHOWN = 3
"""Reasons of refused entries that are shown."""


class _Of(msgspec.Struct):
    """What is read of a line."""

    tenant: str


_OF = msgspec.json.Decoder(_Of)


def save_cache(endpoint: Administrator, scratch: Path, tenant: str | None) -> tuple[Path, int]:
    """Raises: CannotConnect."""
    saved, count = scratch / "cache", 0
    saved.touch(mode=0o600)
    with saved.open("wb") as file:
        for line in _exported(endpoint):
            if tenant is None or _OF.decode(line).tenant == tenant:
                file.write(line)
                count += 1
    return saved, count


def restore_cache(endpoint: Administrator, saved: Path, tenant: str | None) -> tuple[int, list[str]]:
    """How many entries were stored, and why others were not. An entry keeps its id, so that a second time
    changes nothing. Raises: CannotConnect."""
    stored, refused = 0, []
    with saved.open("rb") as file:
        wanted = (line for line in file if tenant is None or _OF.decode(line).tenant == tenant)
        for batch in _batches(wanted):
            more, reasons = _stored(endpoint, batch)
            stored += more
            refused += reasons
    return stored, refused


def _stored(endpoint: Administrator, batch: Sequence[bytes]) -> tuple[int, list[str]]:
    """Lines that are too much for one request go in halves. One that is too much alone is left out, and the
    others are stored."""
    try:
        answer: dict[str, Any] = endpoint.sent(b"".join(batch))
    except TooLarge as error:
        if len(batch) == 1:
            return 0, [str(error)]
        half = len(batch) // 2
        first, second = (_stored(endpoint, part) for part in (batch[:half], batch[half:]))
        return first[0] + second[0], first[1] + second[1]
    return answer["stored"], [each["reason"] for each in answer["refused"]]


def stored_lines(stored: int, refused: list[str]) -> Iterator[str]:
    """Lines for people."""
    yield f"cache: {stored} entries stored"
    if refused:
        reasons = "; ".join(sorted(set(refused))[:SHOWN])
        yield f"cache: {len(refused)} entries were not stored: {reasons}"


def _exported(endpoint: Administrator) -> Iterator[bytes]:
    after: dict[str, str] = {}
    while True:
        lines, following = endpoint.page(after)
        yield from lines.splitlines(keepends=True)
        if following is None:
            return
        after = {"after": following}


def _batches(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for line in lines:
        if batch and size + len(line) > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += len(line)
    if batch:
        yield batch
