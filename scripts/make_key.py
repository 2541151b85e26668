"""Make an API key: print it once, and add its salted hash to a keys file. Or remove a key by its id.

python scripts/make_key.py TENANT [--file config/keys.json] [--admin] [--best-priority N] [--debug-timing]
python scripts/make_key.py --remove ID [--file config/keys.json]

Running gateways see the change within a second.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from serve_app.admission import DEFAULT_PRIORITY, FIRST_PRIORITY, LAST_PRIORITY
from serve_app.request.auth import KeyRecord, decode_records, make_key

Records = tuple[KeyRecord, ...]


def change(path: Path, change_records: Callable[[Records], Records]) -> None:
    """Replace the whole file at once, readable by its owner only; readers see the old or the new file.

    Raises:
        ValueError: what is there is no keys file, or ``change_records`` says so. Nothing is changed then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _alone(path):
        records = decode_records(path.read_bytes()) if path.exists() else ()
        _replace(path, msgspec.json.format(msgspec.json.encode(change_records(records)), indent=2) + b"\n")


def without(records: Records, key_id: str) -> Records:
    """Raises: ValueError: no key has this id."""
    left = tuple(record for record in records if record.id != key_id)
    if len(left) == len(records):
        raise ValueError(f"no key has the id {key_id!r}")
    return left


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold the lock on the keys file. The lock is a separate file, because the keys file is replaced at each
    change."""
    lock = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _replace(path: Path, content: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".keys-")  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)  # after a power cut, no empty file may have this name
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("tenant", nargs="?", help="whose key it is; tenants never share cache entries")
    what.add_argument("--remove", metavar="ID", help="the part of a key between `pk-` and the next `-`")
    parser.add_argument("--file", type=Path, default=Path("config/keys.json"))
    parser.add_argument("--admin", action="store_true", help="may use /admin/*")
    parser.add_argument(
        "--best-priority",
        type=int,
        choices=range(FIRST_PRIORITY, LAST_PRIORITY + 1),
        default=DEFAULT_PRIORITY,
        help="most urgent `x-priority` of its requests, 0 goes first (default: %(default)s, as if unsaid)",
    )
    parser.add_argument(
        "--debug-timing", action="store_true", help="may see all of Server-Timing with `x-debug-timing: 1`"
    )
    arguments = parser.parse_args()
    try:
        if arguments.remove is not None:
            change(arguments.file, lambda records: without(records, arguments.remove))
            return
        key, record = make_key(
            arguments.tenant,
            admin=arguments.admin,
            best_priority=arguments.best_priority,
            debug_timing=arguments.debug_timing,
        )
        if not arguments.file.exists():
            print(f"{arguments.file} is a new keys file: it holds this key alone.", file=sys.stderr)
        change(arguments.file, lambda records: (*records, record))
    except (OSError, ValueError) as error:
        sys.exit(f"{arguments.file}: {error}")
    print(key)


if __name__ == "__main__":
    main()
