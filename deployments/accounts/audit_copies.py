"""The audit log in a backup, and back. Its chain of hashes holds only as a whole, so it is never merged."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from deployments.accounts.audit_log import FILE, HEAD_FILE, files_of, lines_of
from serve_app.audit import verify
from serve_app.errors import BackupError

SCHEMA = 1
"""Version of the lines' format."""

TRIES = 3
"""A log that goes on in a new file meanwhile is read again."""


def save_audit(folder: Path, scratch: Path) -> tuple[Path, int] | None:
    """All its files as one; ``None``: there is none. What is damaged stays so. Raises: BackupError."""
    saved = scratch / "audit"
    try:
        for _ in range(TRIES):
            files = files_of(folder)
            if not files:
                return None
            lines = [line for line in lines_of(files) if line.endswith(b"\n")]
            if verify(lines).problem is None:
                break
        saved.touch(mode=0o600)
        saved.write_bytes(b"".join(lines))
    except OSError as error:
        raise BackupError(f"{folder}: {error}") from error
    return saved, len(lines)


def restore_audit(saved: Path, folder: Path) -> int | None:
    """The number of lines; ``None``: there is a log already, which stays. Raises: BackupError."""
    try:
        if files_of(folder):
            return None
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        data = saved.read_bytes()
        report = verify(data.splitlines(keepends=True))
        if report.problem is None:
            _write(folder / HEAD_FILE, msgspec.json.encode(report.head))
        _write(folder / FILE, data)
    except OSError as error:
        raise BackupError(f"{folder}: {error}") from error
    return data.count(b"\n")


def _write(path: Path, data: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
