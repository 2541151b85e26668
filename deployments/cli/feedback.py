"""What people said of answers of a running endpoint.

    promptly feedback list --negative
    promptly feedback export --suite corrections.json
    promptly feedback erase --tenant acme

`export` makes a golden case of each correction whose question is known: it came with it (`messages`), or the
request was captured. `erase` forgets everything of a tenant. The key of an administrator, or of a team's own
administrator for that team, is read from PROMPTLY_ADMIN_KEY, PROMPTLY_ADMIN_TOKEN or the file that --key-file
names.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from deployments.cli.endpoint import Administrator, add_endpoint, shown
from serve_app.feedback.golden import golden_suite
from serve_app.file_errors import said_of

PATH = "/admin/feedback"
SHOWN_CHARS = 80


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``promptly feedback``."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    found = commands.add_parser("list", help="what was said, the newest first")
    found.add_argument("--negative", action="store_true", help="only scores below 0.5")
    found.add_argument("--corrected", action="store_true", help="only corrections")
    export = commands.add_parser("export", help="corrections as a suite of golden cases")
    export.add_argument("--suite", required=True, metavar="FILE", help="JSON; it is replaced")
    export.add_argument("--scorer", default="similar", help="of the cases; default: similar")
    erase = commands.add_parser("erase", help="forget everything of a tenant")
    erase.add_argument("--tenant", required=True)
    for one in (found, export):
        one.add_argument("--tenant", help="only this one")
        one.add_argument("--model", help="only this one")
    for one in (found, export, erase):
        add_endpoint(one)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    return shown(options, _done, _lines)


def _done(options: argparse.Namespace) -> dict[str, Any]:
    kept = Administrator(options, PATH)
    if options.action == "erase":
        return kept.asked(f"?{urlencode({'tenant': options.tenant})}", method="DELETE")
    if options.action == "export":
        found = kept.all("feedback", {**_filters(options), "corrected": "true", "limit": 500})
        suite, left_out = golden_suite(found["feedback"], options.scorer)
        _write(Path(options.suite), suite)
        return {"suite": options.suite, "cases": len(suite["cases"]), "left_out": left_out}
    flags = {name: "true" for name in ("negative", "corrected") if getattr(options, name)}
    return kept.all("feedback", {**_filters(options), **flags, "limit": 500})


def _filters(options: argparse.Namespace) -> dict[str, str]:
    return {name: value for name in ("tenant", "model") if (value := getattr(options, name)) is not None}


def _write(path: Path, suite: Mapping[str, Any]) -> None:
    """Whole or not at all, and for this user only: it holds texts of requests. Raises: ValueError."""
    if not suite["cases"]:
        raise ValueError("There is no correction whose question is known: nothing is written.")
    new = path.with_name(f"{path.name}.new")
    try:
        with os.fdopen(
            os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8"
        ) as file:
            json.dump(suite, file, ensure_ascii=False, indent=1)
        new.replace(path)
    except OSError as error:
        raise ValueError(f"{path}: {said_of(error)}") from error


def _lines(answer: Mapping[str, Any]) -> Iterator[str]:
    if "suite" in answer:
        yield f"{answer['suite']}: {answer['cases']} cases"
        if answer["left_out"]:
            print(
                f"{answer['left_out']} corrections are left out: what was asked is not known", file=sys.stderr
            )
        return
    if "erased" in answer:
        yield f"{answer['tenant']}: {answer['erased']} rows are erased"
        return
    for each in answer["feedback"]:
        said = each["text"] or each["correction"] or ""
        parts = (each["tenant"], each["request_id"], each["score"], each["label"], _short(said))
        yield "  ".join("-" if part in (None, "") else str(part) for part in parts)


def _short(text: str) -> str:
    """One line that moves no terminal's cursor."""
    line = "".join(each if each.isprintable() else " " for each in text)
    return line if len(line) <= SHOWN_CHARS else f"{line[: SHOWN_CHARS - 1]}…"
