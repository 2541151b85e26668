"""Show what keys, users, tenants and models used, as a running endpoint has counted it.

    promptly usage
    promptly usage --from 2026-01-01 --to 2026-01-31 --by month,tenant
    promptly usage --tenant research --by day,user,model --csv > usage.csv

Days are UTC days. The key of an administrator, or of a team's own administrator for that team, is read from
PROMPTLY_API_KEY, or given with --key-secret.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from serve_app.clients import KEY_VARIABLE
from serve_app.usage.query import FILTERS

DEFAULT_URL = "http://127.0.0.1:8000"
TIMEOUT_S = 30.0
COLUMNS = (
    "requests",
    "refused",
    "tokens_in",
    "tokens_out",
    "cache_hits",
    "gpu_s",
    "cost",
    "gpu_cost",
    "saved",
)
"""Of the table; CSV has all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``promptly usage``."""
    parser.add_argument("--url", default=DEFAULT_URL, help=f"of the endpoint; default: {DEFAULT_URL}")
    parser.add_argument("--key-secret", dest="secret", help=f"default: ${KEY_VARIABLE}")
    parser.add_argument("--from", dest="since", metavar="DAY", help="first UTC day, such as 2026-01-31")
    parser.add_argument("--to", dest="until", metavar="DAY", help="last UTC day")
    for name in FILTERS:
        parser.add_argument(f"--{name}", help="only this one" if name != "key" else "only this key's id")
    parser.add_argument("--by", help="of day, month, tenant, key, user, model; default: day,tenant,model")
    parser.add_argument("--csv", action="store_true", help="all columns, as CSV")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    asked = {
        "from": options.since,
        "to": options.until,
        "by": options.by,
        "format": "csv" if options.csv else None,
        **{name: getattr(options, name) for name in FILTERS},
    }
    given = {name: value for name, value in asked.items() if value is not None}
    try:
        answer = _asked(options.url, given, options.secret or os.environ.get(KEY_VARIABLE))
    except OSError as error:  # HTTPError, URLError and time-outs are
        print(_said(error), file=sys.stderr)
        return 1
    if options.csv:
        sys.stdout.write(answer)
    else:
        print(table(json.loads(answer)))
    return 0


def table(usage: Mapping[str, Any]) -> str:
    """Columns of equal width, with the total below."""
    by = usage["by"]
    rows = [[str(row[name]) or "-" for name in by] + _numbers(row) for row in usage["usage"]]
    total = (["total", *[""] * (len(by) - 1)] if by else []) + _numbers(usage["total"])
    lines = [[*by, *COLUMNS], *rows, total]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = "\n".join(
        "  ".join(
            cell.ljust(width) if place < len(by) else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
    return text + ("\nThere are more rows: ask for fewer days, or for --csv." if usage["more"] else "")


def _numbers(row: Mapping[str, Any]) -> list[str]:
    return [f"{row[name]:,}" if isinstance(row[name], int) else f"{row[name]:,.4g}" for name in COLUMNS]


def _asked(url: str, query: Mapping[str, str], key: str | None) -> str:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"{url.rstrip('/')}/admin/usage?{urlencode(query)}", headers=headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        text: str = response.read().decode()
    return text


def _said(error: OSError) -> str:
    if isinstance(error, urllib.error.HTTPError):
        try:
            return str(json.loads(error.read())["error"]["message"])
        except (ValueError, KeyError, TypeError):
            return f"status {error.code}"
    return f"The endpoint does not answer: {getattr(error, 'reason', error)}"


__all__: Sequence[str] = ("add_arguments", "run", "table")
