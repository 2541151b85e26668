"""Keys of a running endpoint that makes them at run time (`auth: {accounts: true}`).

    promptly keys create --tenant acme --user ann@acme.example --expires-in 90d --model qwen3-8b
    promptly keys list --tenant acme
    promptly keys show 0a1b2c3d4e5f
    promptly keys change 0a1b2c3d4e5f --label "build server" --model qwen3-8b --model qwen3-0.6b
    promptly keys rotate 0a1b2c3d4e5f --overlap 1h
    promptly keys revoke 0a1b2c3d4e5f
    promptly keys revoke --tenant acme --user ann@acme.example     # whatever token, session or key she sends
    promptly keys refused
    promptly keys let-in --tenant acme --user ann@acme.example

The key that may do this is read from PROMPTLY_ADMIN_KEY, from PROMPTLY_ADMIN_TOKEN, which the file `env` of a
start sets, or from the file that --key-file names. A new secret is printed once. Exit status 1: it was
refused; the message says why.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from deployments.cli.dates import utc_text
from deployments.cli.endpoint import Administrator, add_endpoint, shown
from serve_app.api.roles import Role

PATH = "/admin/keys"
REFUSED_PATH = "/admin/refused-users"
REFUSED = ("tenant", "user", "at", "by")
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
SHORT = ("id", "tenant", "user", "role", "label", "expires_at", "revoked_at")
"""What a line of the list shows."""

TIMES = {"at", "changed_at", "created_at", "expires_at", "revoked_at"}

ANY = "any"
"""What a list of models, endpoints or networks is set to, to have no such list any more."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``promptly keys``."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = commands.add_parser("create", help="make a key")
    create.add_argument("--tenant", help="whose it is; default: the own one of a tenant's administrator")
    _add_fields(create)
    found = commands.add_parser("list", help="the keys that there are")
    found.add_argument("--tenant")
    found.add_argument("--user")
    found.add_argument("--state", choices=("active", "revoked", "any"), default="active")
    show = commands.add_parser("show", help="all that is known of a key, but its secret")
    change = commands.add_parser("change", help="change what a key may do")
    _add_fields(change)
    rotate = commands.add_parser("rotate", help="give a key a new secret")
    rotate.add_argument("--overlap", metavar="TIME", help="how long the old one works, such as 1h")
    revoke = commands.add_parser("revoke", help="end a key, or refuse a user")
    revoke.add_argument("id", nargs="?", help="the key's; else --user")
    let_in = commands.add_parser("let-in", help="let a refused user in again")
    for one, required in ((revoke, False), (let_in, True)):
        one.add_argument("--user", required=required, help="whatever token, session or key it sends")
        one.add_argument("--tenant", help="whose user; default: the own one of a tenant's administrator")
    refused = commands.add_parser("refused", help="the users that are refused")
    refused.add_argument("--tenant")
    for one in (show, change, rotate):
        one.add_argument("id")
    for one in (change, rotate):
        one.add_argument("--version", type=int, help="refuse if it was changed since this version")
    for one in (create, found, show, change, rotate, revoke, let_in, refused):
        add_endpoint(one)
    parser.set_defaults(run=run)


def _add_fields(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--user", help="who of the tenant has it")
    parser.add_argument("--label", help="words for people")
    parser.add_argument("--role", choices=[role.value for role in Role])
    for name, what in (("model", "models"), ("path", "endpoints"), ("network", "networks (CIDR)")):
        text = f"one of the {what} that it may use; may be repeated; `{ANY}`: all"
        parser.add_argument(f"--{name}", action="append", help=text)
    parser.add_argument("--priority", type=int, help="the most urgent that it may ask for, 0 to 9")
    parser.add_argument("--expires-in", metavar="TIME", help="such as 12h or 90d")
    parser.add_argument("--debug-timing", action="store_true", default=None)


def run(options: argparse.Namespace) -> int:
    of_users = options.action in ("refused", "let-in") or (options.action == "revoke" and not options.id)
    return shown(options, _of_users if of_users else _done, _lines)


def _done(options: argparse.Namespace) -> dict[str, Any]:
    keys = Administrator(options, PATH)
    one = f"/{quote(getattr(options, 'id', ''), safe='')}"
    match options.action:
        case "create":
            return keys.asked(body=_fields(options))
        case "list":
            found = {"tenant": options.tenant, "user": options.user, "state": options.state, "limit": 1000}
            return keys.all("keys", _said(found))
        case "show":
            return keys.asked(one)
        case "change":
            return keys.asked(one, _fields(options), "PATCH")
        case "rotate":
            given = {"overlap_s": _seconds(options.overlap), "version": options.version}
            return keys.asked(f"{one}/rotate", _said(given))
    if options.user:
        raise ValueError("revoke a key or a user, not both")
    return keys.asked(one, method="DELETE")


def _of_users(options: argparse.Namespace) -> dict[str, Any]:
    """Raises: ValueError: no user is named."""
    users = Administrator(options, REFUSED_PATH)
    named = _said({"tenant": options.tenant, "user": getattr(options, "user", None)})
    if options.action == "refused":
        return users.asked(f"?{urlencode(named)}")
    if options.action == "let-in":
        return users.asked(f"?{urlencode(named)}", method="DELETE")
    if not options.user:
        raise ValueError("revoke what? Give the id of a key, or --user")
    return users.asked(body=named)


def _fields(options: argparse.Namespace) -> dict[str, Any]:
    given = {
        "tenant": getattr(options, "tenant", None),
        "user": options.user,
        "label": options.label,
        "role": options.role,
        "priority": options.priority,
        "debug_timing": options.debug_timing,
        "expires_in_s": _seconds(options.expires_in),
        "version": getattr(options, "version", None),
    }
    lists = {"models": options.model, "endpoints": options.path, "networks": options.network}
    chosen = {name: None if ANY in values else values for name, values in lists.items() if values}
    return _said(given) | chosen


def _said(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _seconds(text: str | None) -> float | None:
    """Raises: ValueError: it is no time such as ``90d``."""
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]{1,9})([smhdw])", text)
    if found is None:
        raise ValueError(f"{text!r}: expected a number and one of s, m, h, d, w, such as 90d")
    return float(int(found[1]) * UNITS[found[2]])


def _lines(answer: Mapping[str, Any]) -> Iterable[str]:
    if "keys" in answer:
        for key in answer["keys"]:
            said = [name for name in SHORT if key[name] not in (None, "")]
            yield "  ".join(f"{name}={_text(name, key[name])}" for name in said)
        return
    if "users" in answer:
        for user in answer["users"]:
            yield "  ".join(f"{name}={_text(name, user[name])}" for name in REFUSED if user[name] != "")
        return
    for name, value in answer.items():
        if name not in ("object", "key") and value not in (None, ""):
            yield f"{name}: {_text(name, value)}"
    if "key" in answer:
        yield f"\nThe key, which is shown only now:\n{answer['key']}"


def _text(name: str, value: Any) -> str:
    """Times as people read them; `--json` has them as the endpoint says them, in seconds since 1970."""
    if name in TIMES and isinstance(value, int | float):
        return utc_text(value)
    return ", ".join(value) if isinstance(value, list) else str(value)
