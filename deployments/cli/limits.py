"""Limits and budgets of a running endpoint that keeps accounts.

    promptly limits set tenant:acme --tokens-per-day 2000000 --money-per-month 500 --time-zone Europe/Berlin
    promptly limits set key:0a1b2c3d4e5f --requests-per-minute 60 --parallel-requests 4
    promptly limits list --scope tenant:
    promptly limits remove tenant:acme

A scope is `key:ID`, `user:TENANT/NAME`, `tenant:NAME`, `model:NAME` or `use:TENANT/MODEL` (a tenant's use of
a model). `set` replaces all limits of the scope; what it leaves out has the default of the settings. The key
that may do this is read from PROMPTLY_ADMIN_KEY, PROMPTLY_ADMIN_TOKEN or the file that --key-file names.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

from deployments.cli.endpoint import Administrator, add_endpoint, shown
from serve_app.quotas.limits import MONEY, Bound

PATH = "/admin/limits"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``promptly limits``."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    change = commands.add_parser("set", help="give a scope limits")
    found = commands.add_parser("list", help="the limits that there are, and what is used of them")
    remove = commands.add_parser("remove", help="leave a scope the defaults")
    for one in (change, remove):
        one.add_argument("scope")
    found.add_argument("--scope", default="", help="how the scopes begin, such as `tenant:`")
    for bound in Bound:
        kind = float if bound in MONEY else int
        change.add_argument(f"--{bound.value.replace('_', '-')}", type=kind, metavar="N")
    change.add_argument("--time-zone", help="of a tenant's days and months, such as Europe/Berlin")
    for one in (change, found, remove):
        add_endpoint(one)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    return shown(options, _done, _lines)


def _done(options: argparse.Namespace) -> dict[str, Any]:
    limits = Administrator(options, PATH)
    if options.action == "set":
        names = [*(bound.value for bound in Bound), "time_zone"]
        given = {name: value for name in names if (value := getattr(options, name)) is not None}
        return limits.asked(body={"scope": options.scope, **given}, method="PUT")
    if options.action == "remove":
        return limits.asked(f"?{urlencode({'scope': options.scope})}", method="DELETE")
    return limits.all("limits", {"scope": options.scope})


def _lines(answer: Mapping[str, Any]) -> Iterator[str]:
    if "limits" not in answer:
        yield "  ".join(f"{name}={value}" for name, value in answer.items())
        return
    for each in answer["limits"]:
        uses = [f"{bound}={_said(use['used'])}/{_said(use['limit'])}" for bound, use in each["uses"].items()]
        zone = each["limit"].get("time_zone")
        yield "  ".join([each["limit"]["scope"], *uses, *([f"time_zone={zone}"] if zone else [])])


def _said(amount: float) -> str:
    """Money without the digits that nobody pays by."""
    return str(amount) if isinstance(amount, int) else f"{amount:.6f}".rstrip("0").rstrip(".")
