"""Put what an archive of `promptly backup` holds back, here or on another machine.

    promptly restore all.promptly --dry-run
    promptly restore all.promptly --config config.yaml
    promptly restore all.promptly --tenant acme
    promptly restore all.promptly --endpoint http://127.0.0.1:8000

Without --endpoint it writes the files (or the Postgres database) of an application that is stopped. With
--endpoint it gives the cache's entries to a running one. What is there stays: nothing is removed, a key that
was revoked since stays revoked, and a second time changes nothing. For the state of the archive alone,
restore into empty folders. An archive of a newer version is refused, and nothing is changed then.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from deployments.accounts.audit_copies import restore_audit
from deployments.cli.backup import add_sources
from deployments.cli.endpoint import Administrator, CannotConnect
from deployments.cli.kept import SCHEMAS, Kept, kept_by
from deployments.cli.kept_cache import PATH, restore_cache, stored_lines
from deployments.platform.archive import read_archive
from deployments.platform.sqlite import bytes_at_end
from serve_app.backup import Manifest
from serve_app.errors import BackupError, SettingsError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``promptly restore``."""
    parser.add_argument("archive", type=Path)
    parser.add_argument("--tenant", help="only what belongs to this one")
    parser.add_argument("--dry-run", action="store_true", help="check the archive and say what is in it")
    add_sources(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    try:
        with tempfile.TemporaryDirectory(prefix="promptly-") as scratch:
            print("\n".join(restored(options, Path(scratch))))
    except (BackupError, SettingsError, CannotConnect) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def restored(options: argparse.Namespace, scratch: Path) -> Iterator[str]:
    """Lines that say what was done. Raises: BackupError, SettingsError, CannotConnect."""
    manifest = read_archive(options.archive, scratch, SCHEMAS)
    if manifest.tenant is not None and options.tenant not in (None, manifest.tenant):
        raise BackupError(f"{options.archive} holds what belongs to {manifest.tenant!r} only.")
    if options.dry_run:
        yield from _described(manifest)
    elif options.endpoint is not None:
        yield from _cache(options, manifest, scratch)
    else:
        yield from _files(kept_by(options.config), options.tenant, manifest, scratch)


def _described(manifest: Manifest) -> Iterator[str]:
    whose = "everybody" if manifest.tenant is None else manifest.tenant
    made = datetime.fromtimestamp(manifest.made_at, UTC)
    yield f"made by Promptly {manifest.made_by} at {made:%Y-%m-%d %H:%M:%S} UTC, of {whose}; it is whole"
    for member in manifest.members:
        yield f"{member.name}: {member.rows} rows, {member.bytes} bytes, schema {member.schema}"


def _cache(options: argparse.Namespace, manifest: Manifest, scratch: Path) -> Iterator[str]:
    if manifest.named("cache") is None:
        raise BackupError(f"{options.archive} holds no entries of a cache.")
    yield from stored_lines(*restore_cache(Administrator(options, PATH), scratch / "cache", options.tenant))


def _check_room(needs: Sequence[tuple[Path, int]]) -> None:
    """``needs``: files, and what each may take on its disk when it is kept. Raises: BackupError: when the
    first is kept there may be no room for the others."""
    of_disk: dict[int, int] = {}
    for file, size in needs:
        folder = next(each for each in file.absolute().parents if each.exists())
        device, free = folder.stat().st_dev, shutil.disk_usage(folder).free
        of_disk[device] = of_disk.get(device, 0) + size
        if of_disk[device] > free:
            raise BackupError(
                f"{folder}: {free} bytes are free on this disk, and {of_disk[device]} may be needed. "
                "Nothing was restored: make room first."
            )


def _files(kept: Kept, tenant: str | None, manifest: Manifest, scratch: Path) -> Iterator[str]:
    """All parts are written before the first is kept, and none is where there is no room for all."""
    done: list[str] = []
    needs: list[tuple[Path, int]] = []
    log = manifest.named("audit") if kept.audit is not None and tenant is None else None
    if kept.audit is not None and log is not None:
        needs.append((kept.audit / log.name, log.bytes))
    with ExitStack() as stack:
        for part in kept.parts:
            if manifest.named(part.name) is not None:
                rows = stack.enter_context(part.restoring(scratch / part.name, tenant))
                done.append(f"{part.name}: {rows} rows")
                needs += [] if part.file is None else [(part.file, bytes_at_end(part.file))]
        _check_room(needs)
    yield from done
    if kept.audit is not None and log is not None:
        lines = restore_audit(scratch / "audit", kept.audit)
        yield "audit: there is a log already, which stays" if lines is None else f"audit: {lines} lines"
    known = {part.name for part in kept.parts} | ({"audit"} if kept.audit is not None else set())
    for member in manifest.members:
        if member.name == "cache":
            yield "cache: start the application, then restore its entries with --endpoint"
        elif member.name not in known:
            yield f"{member.name}: left out, as the config file has no such section"
