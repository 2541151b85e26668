"""The chain of an audit log: how a line is written, and what is wrong with a file.

A line's hash covers its own text and the hash of the line before, so no line can be changed, removed, moved
or inserted without breaking the chain behind it. Someone who can write the file can also rewrite the rest
of the chain; against that, and against the loss of the last lines, a *head* is kept apart from the file: the
number and the hash of the last line.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from serve_app.audit.values import AuditEvent, AuditLine

FIRST = "0" * 64
"""What the first line of a log holds as the hash of the line before."""

HASH_FIELD = b',"hash":"'
HASH_CHARS = 64
END = b'"}'

_line = msgspec.json.Decoder(AuditLine)


class Head(msgspec.Struct, frozen=True):
    """The last line of a log: its number, 0 before there is one, and its hash."""

    seq: int = 0
    hash: str = FIRST


class AuditPage(msgspec.Struct, frozen=True):
    """The newest lines, newest first, and how the log ends."""

    lines: tuple[AuditLine, ...]
    head: Head


class Chain:
    """Writes lines, one behind the other, from ``head`` on."""

    def __init__(self, head: Head) -> None:
        self.head = head

    def line(self, event: AuditEvent) -> tuple[bytes, Head]:
        """The next line with its line feed, and the head that it becomes by :meth:`advance`."""
        event = event.bounded()
        fields = {
            "seq": self.head.seq + 1,
            "time": datetime.fromtimestamp(event.at, UTC).isoformat(timespec="milliseconds"),
            "actor": event.actor,
            "role": event.role,
            "tenant": event.tenant,
            "action": event.action,
            "target": event.target,
            "outcome": event.outcome,
            "request_id": event.request_id,
            "gateway": event.gateway,
            "previous": self.head.hash,
        }
        covered = msgspec.json.encode(fields).removesuffix(b"}")
        hashed = hashlib.sha256(covered).hexdigest()
        return covered + HASH_FIELD + hashed.encode() + END + b"\n", Head(self.head.seq + 1, hashed)

    def advance(self, head: Head) -> None:
        """The line has been written."""
        self.head = head


class Report(msgspec.Struct, frozen=True):
    """What :func:`verify` found. ``problem`` names the line that is wrong, ``None`` if none is. ``first`` is
    the number of the first line: above 1, older files were removed or left out."""

    lines: int
    first: int
    head: Head
    problem: str | None = None


def verify(lines: Iterable[bytes], head: Head | None = None) -> Report:
    """Check a log, line by line in the order of its files; ``head``: what the log is known to end with.
    The first problem ends the check."""
    before: Head | None = None
    first = number = 0
    for number, raw in enumerate(lines, 1):
        line, problem = _checked(raw)
        if line is not None and problem is None and before is not None:
            problem = _out_of_place(line, before)
        if line is not None and problem is None and before is None:
            first = line.seq
            problem = "has number 1 and names a line before it" if _is_false_first(line) else None
        if problem is not None or line is None:
            return Report(number - 1, first, before or Head(), f"line {number} {problem}")
        before = Head(line.seq, line.hash)
    last = before or Head()
    return Report(number, first, last, None if head is None else _wrong_end(number, last, head))


def read_line(raw: bytes) -> AuditLine | None:
    """``None``: it is no line of an audit log."""
    try:
        return _line.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _checked(raw: bytes) -> tuple[AuditLine | None, str | None]:
    if not raw.endswith(b"\n"):
        return None, "was not written to its end"
    line = read_line(raw)
    if line is None:
        return None, "is no line of an audit log"
    body = raw.removesuffix(b"\n")
    covered = body[: -len(HASH_FIELD) - HASH_CHARS - len(END)]
    written = covered + HASH_FIELD + hashlib.sha256(covered).hexdigest().encode() + END
    return line, None if body == written else f"(number {line.seq}) was changed"


def _out_of_place(line: AuditLine, before: Head) -> str | None:
    if line.seq > before.seq + 1:
        gone = line.seq - before.seq - 1
        return (
            f"has number {line.seq} behind {before.seq}: {gone} before it were removed, or lines were moved"
        )
    if line.seq <= before.seq:
        return f"has number {line.seq} behind {before.seq}: lines were moved, or it was inserted"
    if line.previous != before.hash:
        return f"(number {line.seq}) does not follow the line before it: one of the two was replaced"
    return None


def _is_false_first(line: AuditLine) -> bool:
    return line.seq == 1 and line.previous != FIRST


def _wrong_end(number: int, last: Head, head: Head) -> str | None:
    if last.seq < head.seq:
        return (
            f"behind line {number} (number {last.seq}) {head.seq - last.seq} were removed: the log ended "
            f"with number {head.seq}"
        )
    if last.seq > head.seq:
        return f"line {number - (last.seq - head.seq) + 1} (number {head.seq + 1}) was appended by another"
    if last.hash != head.hash:
        return f"line {number} (number {last.seq}) is not the one that the log ended with"
    return None
