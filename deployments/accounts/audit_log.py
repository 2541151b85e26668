"""The files of the audit log. One thread owns them; every line is on the disk before its call returns."""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from serve_app.audit import AuditEvent, AuditLine, Chain, Head, verify
from serve_app.audit.chain import read_line

FILE = "audit.jsonl"
HEAD_FILE = "audit.head"
TORN_FILE = "audit.torn"
OLD_FILES = "audit-*.jsonl"

KNOWN_EVENTS = 1024
"""The newest events: a call that is repeated because its answer was lost writes no second line."""

ITSELF = "promptly"

logger = logging.getLogger("ray.serve")


class AuditLog:
    """``now``: Unix seconds. Raises OSError, also later: the disk is full, or the folder is not ours."""

    def __init__(self, folder: Path, max_bytes: int, max_files: int, now: float) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._max_bytes, self._max_files = max_bytes, max_files
        self._known: OrderedDict[AuditEvent, None] = OrderedDict()
        head, trouble = self._taken_up()
        self._chain = Chain(head)
        self._file = os.open(folder / FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._size = os.fstat(self._file).st_size
        if trouble is not None:
            logger.error("the audit log %s: %s", folder / FILE, trouble)
            self.write(
                AuditEvent(actor=ITSELF, action="audit.damaged", target=trouble, outcome="done", at=now)
            )

    @property
    def head(self) -> Head:
        return self._chain.head

    def write(self, event: AuditEvent) -> Head:
        """Returns the log's new head, after the line is on the disk. An event that was written a moment ago
        is not written again."""
        if event in self._known:
            return self._chain.head
        if self._size >= self._max_bytes:
            self._rotate(event.at)
        self._append(event)
        self._known[event] = None
        if len(self._known) > KNOWN_EVENTS:
            self._known.popitem(last=False)
        return self._chain.head

    def newest(self, count: int) -> list[AuditLine]:
        """The newest lines, newest first."""
        found: list[AuditLine] = []
        for path in reversed(files_of(self._folder)):
            lines = [read_line(raw) for raw in path.read_bytes().splitlines()[-(count - len(found)) :]]
            found += [line for line in reversed(lines) if line is not None]
            if len(found) >= count:
                break
        return found

    def close(self) -> None:
        os.close(self._file)

    def _append(self, event: AuditEvent) -> None:
        line, head = self._chain.line(event)
        try:
            if os.write(self._file, line) != len(line):
                raise OSError("the disk took a part of the line")
            os.fsync(self._file)
            _replace(self._folder / HEAD_FILE, msgspec.json.encode(head))
        except OSError:
            os.ftruncate(self._file, self._size)  # a part of a line must not stand before the next
            raise
        self._size += len(line)
        self._chain.advance(head)

    def _rotate(self, now: float) -> None:
        """The chain goes on in a new file; the oldest of more than ``max_files`` is removed, and the log says
        so."""
        path = self._folder / FILE
        if path.exists():  # else an earlier try came so far
            path.rename(self._folder / f"audit-{self._chain.head.seq:012d}.jsonl")
        opened = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.close(self._file)
        self._file, self._size = opened, 0
        old = sorted(self._folder.glob(OLD_FILES))
        for path in old[: max(0, len(old) - self._max_files + 1)]:
            path.unlink()
            self._append(self._own("audit.expired", path.name, now))

    def _own(self, action: str, target: str, now: float) -> AuditEvent:
        return AuditEvent(actor=ITSELF, action=action, target=target, outcome="done", at=now)

    def _taken_up(self) -> tuple[Head, str | None]:
        """The head to go on from, and what is wrong with what was found. A kill between a line and the head
        leaves one line more than the head tells; one within a line leaves a part of it. Where lines are
        missing the chain goes on from the head, so that it can be seen for ever. Older files than the newest
        two were checked when they were written."""
        torn = self._cut_torn_line(self._folder / FILE)
        kept = self._kept_head()
        files = files_of(self._folder)[-2:]
        report = verify(lines_of(files))
        last = report.head if report.problem is None else _last_line(files)
        if report.problem is not None:
            return max(kept, last, key=lambda head: head.seq), report.problem
        if last.seq == kept.seq + 1 or last == kept:
            return last, torn
        if last.seq > kept.seq:
            return last, f"it ends with number {last.seq}, and ended with {kept.seq}"
        return kept, f"it ends with number {last.seq}, and ended with {kept.seq}"

    def _cut_torn_line(self, path: Path) -> str | None:
        if not path.exists():
            return None
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole == len(data):
            return None
        _replace(self._folder / TORN_FILE, data[whole:])
        os.truncate(path, whole)
        return f"its last line was not written to its end, and was moved to {TORN_FILE}"

    def _kept_head(self) -> Head:
        try:
            return msgspec.json.decode((self._folder / HEAD_FILE).read_bytes(), type=Head)
        except (OSError, msgspec.DecodeError):
            return Head()


def _last_line(files: Sequence[Path]) -> Head:
    """The last line of a damaged log that can be read."""
    last = Head()
    for raw in lines_of(files):
        line = read_line(raw)
        if line is not None and line.seq >= last.seq:
            last = Head(line.seq, line.hash)
    return last


def files_of(folder: Path) -> list[Path]:
    """The files of the log in ``folder``, oldest first."""
    newest = folder / FILE
    return [*sorted(folder.glob(OLD_FILES)), *([newest] if newest.exists() else [])]


def lines_of(files: Sequence[Path]) -> Iterator[bytes]:
    """The lines of several files, each with its line feed."""
    for path in files:
        with path.open("rb") as opened:
            yield from opened


def _replace(path: Path, data: bytes) -> None:
    """The file has all of ``data``, or is as it was."""
    new = path.with_suffix(".new")
    opened = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(opened, data)
        os.fsync(opened)
    finally:
        os.close(opened)
    new.replace(path)
