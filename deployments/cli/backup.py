"""Put what an application keeps into one archive: keys (their hashes), limits and usage, the audit log,
stored responses and conversations, feedback and captured requests, and the cache's entries.

    promptly backup all.promptly
    promptly backup all.promptly --config config.yaml --endpoint http://127.0.0.1:8000
    promptly backup acme.promptly --tenant acme

Run it on the machine that has the files; the application may be running. The cache's entries come through a
running endpoint only (--endpoint, with the key of an administrator in PROMPTLY_ADMIN_KEY,
PROMPTLY_ADMIN_TOKEN or the file that --key-file names). Without --config it takes what is in the usual
folders.
The archive is readable by this user only. What is sealed stays sealed: keep the keys for it (the settings'
`encryption_key_env`) elsewhere.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from deployments.accounts.audit_copies import save_audit
from deployments.cli.endpoint import ADMIN_KEY, Administrator, CannotConnect
from deployments.cli.kept import SCHEMAS, kept_by
from deployments.cli.kept_cache import PATH, save_cache
from deployments.platform.archive import described, write_archive
from serve_app.backup import Manifest
from serve_app.errors import BackupError, SettingsError
from serve_app.file_errors import said_of

Saved = Iterator[tuple[str, Path, int]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``promptly backup``."""
    parser.add_argument("archive", type=Path, help="it is made, or replaced when all is in the new one")
    parser.add_argument("--tenant", help="only what belongs to this one; the audit log is left out")
    add_sources(parser)
    parser.set_defaults(run=run)


def add_sources(parser: argparse.ArgumentParser) -> None:
    """Where what is kept is found."""
    parser.add_argument("--config", type=Path, help="it says where; default: the usual folders")
    parser.add_argument("--endpoint", "--url", metavar="URL", help="running endpoint, for cache entries")
    parser.add_argument("--key-file", metavar="FILE", help=f"holds the admin key; default: ${ADMIN_KEY}")


def run(options: argparse.Namespace) -> int:
    try:
        print("\n".join(backed_up(options)))
    except (BackupError, SettingsError, CannotConnect) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def backed_up(options: argparse.Namespace) -> Iterator[str]:
    """Lines that say what is in it. Raises: BackupError, SettingsError, CannotConnect."""
    target: Path = options.archive
    try:
        target = target.resolve()  # what a link names is replaced, not the link
        if target.exists() and not target.is_file():
            raise BackupError(f"{target} is no file: it is not replaced")
        scratch = tempfile.TemporaryDirectory(dir=target.parent, prefix=".promptly-")
    except (OSError, RuntimeError) as error:
        raise BackupError(f"{target}: {said_of(error)}") from error
    with scratch as folder:
        members, files = [], {}
        for name, path, rows in _saved(options, Path(folder)):
            members.append(described(name, SCHEMAS[name], path, rows))
            files[name] = path
            yield f"{name}: {rows} rows" if name != "cache" else f"cache: {rows} entries"
        if not members:
            raise BackupError("There is nothing to back up: name the config file with --config.")
        manifest = Manifest(made_at=time.time(), tenant=options.tenant, members=tuple(members))
        write_archive(target, manifest, files)
    if "cache" not in files:
        yield "cache: left out, as no running endpoint was named (--endpoint)"
    yield f"{target}: {target.stat().st_size} bytes"


def _saved(options: argparse.Namespace, scratch: Path) -> Saved:
    kept = kept_by(options.config)
    for part in kept.parts:
        found = part.save(scratch, options.tenant)
        if found is not None:
            yield (part.name, *found)
    log = None if kept.audit is None or options.tenant is not None else save_audit(kept.audit, scratch)
    if log is not None:
        yield ("audit", *log)
    if options.endpoint is not None:
        yield ("cache", *save_cache(Administrator(options, PATH), scratch, options.tenant))
