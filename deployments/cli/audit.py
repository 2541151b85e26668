"""Check and show the audit log of a running or stopped application, on the machine that has its files.

    promptly audit verify
    promptly audit verify ~/.cache/promptly/accounts/audit.jsonl --head 1200:5f0c…
    promptly audit show --action keys.create --last 20
    promptly audit show --csv > audit.csv

Without FILE both look in the folder of `accounts.path`'s default. `verify` names the first line that was
changed, removed, moved, inserted or cut off, and its exit status is then 1. The head, the number and the hash
of the last line, is read from `audit.head` beside the file. A copy kept elsewhere is given with --head:
then even someone who can write all these files cannot hide a change of what was before.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import msgspec

from serve_app.audit import AuditLine, Head, verify
from serve_app.audit.chain import read_line
from serve_app.file_errors import said_of
from serve_app.model_store import default_cache_dir
from serve_app.usage.shown import safe_cell

FOLDER = "accounts"
FILE = "audit.jsonl"
HEAD_FILE = "audit.head"
OLD_FILES = "audit-*.jsonl"
FIELDS = AuditLine.__struct_fields__
FILTERS = ("actor", "action", "tenant", "outcome")


class CannotRead(Exception):
    """A file is missing, or is none of an audit log."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``promptly audit``."""
    commands = parser.add_subparsers(dest="audit_command", required=True, metavar="COMMAND")
    checking = commands.add_parser("verify", help="check the chain of hashes")
    checking.add_argument("--head", help="NUMBER:HASH of the last line; default: audit.head beside the file")
    checking.set_defaults(run=_run_verify)
    showing = commands.add_parser("show", help="print lines, as a table, CSV or JSON")
    for name in FILTERS:
        showing.add_argument(f"--{name}", help=f"only lines with this {name}")
    showing.add_argument("--last", type=int, metavar="N", help="only the last N lines that fit")
    forms = showing.add_mutually_exclusive_group()
    forms.add_argument("--csv", action="store_true")
    forms.add_argument("--json", action="store_true", help="the lines as they stand in the file")
    showing.set_defaults(run=_run_show)
    for each in (checking, showing):
        each.add_argument(
            "files",
            nargs="*",
            type=Path,
            metavar="FILE",
            help=f"oldest first; default: all of {default_cache_dir() / FOLDER}",
        )


def _run_verify(options: argparse.Namespace) -> int:
    try:
        files = _files(options.files)
        report = verify(_lines(files), _head(options.head, files[-1]))
    except (CannotRead, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    named = ", ".join(map(str, files))
    if report.problem is not None:
        print(f"{named}: {report.problem}", file=sys.stderr)
        return 1
    print(f"{named}: {report.lines} lines, the chain is whole. It ends with {_shown(report.head)}")
    if report.first > 1:
        print(f"It begins with number {report.first}: the lines before are in older files, or were removed.")
    return 0


def _run_show(options: argparse.Namespace) -> int:
    try:
        lines = list(_found(options))
    except (CannotRead, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    if options.json:
        sys.stdout.write("".join(msgspec.json.encode(line).decode() + "\n" for line in lines))
    elif options.csv:
        writer = csv.writer(sys.stdout, lineterminator="\r\n")
        writer.writerow(FIELDS)
        writer.writerows([safe_cell(str(getattr(line, name))) for name in FIELDS] for line in lines)
    else:
        for line in lines:
            print(f"{line.seq} {line.time} {line.actor} {line.action} {_plain(line.target)} {line.outcome}")
    return 0


def _found(options: argparse.Namespace) -> Sequence[AuditLine]:
    wanted = {name: value for name in FILTERS if (value := getattr(options, name)) is not None}
    read = (read_line(raw) for raw in _lines(_files(options.files)))
    fitting = [
        line
        for line in read
        if line is not None and all(getattr(line, name) == value for name, value in wanted.items())
    ]
    return fitting if options.last is None else fitting[-max(0, options.last) or len(fitting) :]


def _files(given: Sequence[Path]) -> list[Path]:
    """Raises: CannotRead."""
    if given:
        return list(given)
    folder = default_cache_dir() / FOLDER
    files = [*sorted(folder.glob(OLD_FILES)), folder / FILE]
    if not files[-1].exists():
        raise CannotRead(f"There is no audit log in {folder}: name its files.")
    return files


def _lines(files: Sequence[Path]) -> Iterator[bytes]:
    return chain.from_iterable(_lines_of(path) for path in files)


def _lines_of(path: Path) -> Iterator[bytes]:
    """Raises: CannotRead."""
    try:
        with path.open("rb") as opened:
            yield from opened
    except OSError as error:
        raise CannotRead(f"{path}: {said_of(error)}") from error


def _head(given: str | None, last: Path) -> Head | None:
    """Raises: CannotRead."""
    if given is not None:
        number, _, hashed = given.partition(":")
        if not number.isdecimal() or not hashed:
            raise CannotRead(f"--head is {given!r}: expected NUMBER:HASH, as `verify` prints it.")
        return Head(int(number), hashed)
    if last.name != FILE:  # how an older file ends is written nowhere
        return None
    path = last.with_name(HEAD_FILE)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Head)
    except FileNotFoundError:
        print(f"There is no {path}: lines that are missing at the end are not noticed.", file=sys.stderr)
        return None
    except msgspec.DecodeError as error:
        raise CannotRead(f"{path}: {error}") from None


def _shown(head: Head) -> str:
    return f"{head.seq}:{head.hash}"


def _plain(text: str) -> str:
    """Nothing that moves a terminal's cursor."""
    return "".join(char if char.isprintable() else "?" for char in text) or "-"
