"""What an archive of kept data says of itself, and which archives may be restored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from serve_app.errors import BackupError
from serve_app.version import VERSION

FORMAT = 1
"""Version of the archive as a whole. Raise it when members are read in another way."""

MANIFEST = "manifest.json"

LAST_S = 253_402_300_799
"""The end of the year 9999: no later time has a date."""


class Member(msgspec.Struct, frozen=True):
    """One part of what was kept. ``schema``: the version of its tables or lines; ``rows``: for people."""

    name: str
    schema: int
    bytes: Annotated[int, msgspec.Meta(ge=0)]
    sha256: str
    rows: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """``tenant``: whose data it is, ``None``: everybody's. ``made_at`` is in Unix seconds."""

    format: int = FORMAT
    made_by: str = VERSION
    made_at: Annotated[float, msgspec.Meta(ge=0, le=LAST_S)]
    tenant: str | None = None
    members: tuple[Member, ...]

    def named(self, name: str) -> Member | None:
        return next((member for member in self.members if member.name == name), None)


_DECODER = msgspec.json.Decoder(Manifest)


def read_manifest(data: bytes, known: Mapping[str, int]) -> Manifest:
    """``known``: the newest schema of each part that this version reads.

    Raises:
        BackupError: it is no manifest, or a newer version made the archive.
    """
    try:
        manifest = _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BackupError(f"It has no manifest of a backup: {error}") from None
    newer = _what_is_newer(manifest, known)
    if newer is not None:
        raise BackupError(
            f"It was made by Promptly {manifest.made_by}, and {newer}; this is {VERSION}. Nothing was "
            f"restored: install {manifest.made_by} or newer."
        )
    names = [member.name for member in manifest.members]
    if len(set(names)) != len(names):
        raise BackupError("Its manifest names a part twice.")
    return manifest


def _what_is_newer(manifest: Manifest, known: Mapping[str, int]) -> str | None:
    if manifest.format > FORMAT:
        return f"its format is {manifest.format}, where {FORMAT} is the newest that is read here"
    for member in manifest.members:
        if member.name not in known:
            return f"it holds {member.name!r}, which this version does not know"
        if member.schema > known[member.name]:
            newest = known[member.name]
            return f"its {member.name} are of schema {member.schema}, where {newest} is the newest known here"
    return None
