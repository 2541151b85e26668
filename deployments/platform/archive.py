"""The file of a backup: a compressed tar with a manifest first, for this user only, whole or not at all."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import msgspec

from serve_app.backup import MANIFEST, Manifest, Member, read_manifest
from serve_app.errors import BackupError
from serve_app.file_errors import said_of

MOST_MANIFEST_BYTES = 1 << 20
CHUNK = 1 << 20


def described(name: str, schema: int, path: Path, rows: int) -> Member:
    """What the manifest says of the file ``path``."""
    return Member(name, schema, path.stat().st_size, _digest(path), rows)


def write_archive(path: Path, manifest: Manifest, files: Mapping[str, Path]) -> None:
    """``files``: each member's, by its name. A file at ``path`` is replaced. Raises: BackupError."""
    new: Path | None = None
    try:
        # A name of its own: two backups into one archive may overlap.
        descriptor, name = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
        new = Path(name)
        with os.fdopen(descriptor, "wb") as file:
            with tarfile.open(fileobj=file, mode="w:gz") as archive:
                _add(archive, MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))
                for member in manifest.members:
                    archive.add(files[member.name], arcname=member.name, filter=_as_nobody)
            file.flush()
            os.fsync(descriptor)
        new.replace(path)
    except BaseException as error:
        if new is not None:
            new.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise BackupError(f"{path}: {said_of(error)}") from error
        raise


def read_archive(path: Path, into: Path, known: Mapping[str, int]) -> Manifest:
    """Check the archive, and put each member into the folder ``into``, in a file of its name.

    Raises:
        BackupError: it is no archive, was cut off or changed, or a newer version made it.
    """
    try:
        with tarfile.open(path, "r:gz") as archive:
            manifest = read_manifest(_first(archive), known)
            for member in manifest.members:
                _extract(archive, member, into / member.name)
    except BackupError as error:
        raise BackupError(f"{path}: {error}") from None
    except (OSError, EOFError, tarfile.TarError, zlib.error, KeyError) as error:
        raise BackupError(f"{path}: it is no whole backup: {said_of(error)}") from error
    return manifest


def _first(archive: tarfile.TarFile) -> bytes:
    """The manifest. Raises: BackupError."""
    entry = archive.next()
    if entry is None or entry.name != MANIFEST:
        raise BackupError("it has no manifest")
    return _file(archive, entry).read(MOST_MANIFEST_BYTES)


def _extract(archive: tarfile.TarFile, member: Member, target: Path) -> None:
    """Not more than the manifest says. Raises: BackupError."""
    opened = _file(archive, archive.getmember(member.name))
    digest, left = hashlib.sha256(), member.bytes
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        while chunk := opened.read(min(CHUNK, left + 1)):
            left -= len(chunk)
            if left < 0:
                break
            digest.update(chunk)
            file.write(chunk)
    if left != 0 or digest.hexdigest() != member.sha256:
        raise BackupError(f"its part {member.name!r} was changed or cut off; nothing was restored")


def _file(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> IO[bytes]:
    """Never what a link names, which may be itself. Raises: BackupError."""
    opened = archive.extractfile(entry) if entry.isreg() else None
    if opened is None:
        raise BackupError(f"its part {entry.name!r} is no file")
    return opened


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), 0o600
    archive.addfile(entry, io.BytesIO(data))


def _as_nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """The entry without its owner."""
    entry.mode, entry.uid, entry.gid, entry.uname, entry.gname = 0o600, 0, 0, "", ""
    return entry


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
