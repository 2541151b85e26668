"""What an audit line says. It never holds a key, a prompt or an answer."""

from __future__ import annotations

import re

import msgspec

MOST_CHARS = 300
"""Longest text of a line: clients choose some of them."""

BEGUN = "begun"
"""The outcome of a change that is about to be made: written before it. A second line says how it ended."""

SECRETS = re.compile(r"\b(pk-[0-9a-f]{12}-|sk-|eyJ)[A-Za-z0-9_.+/=-]+")
"""What looks like a key or a token, with what of it may stay: a client may have pasted one into a path."""

TEXTS = ("actor", "role", "tenant", "action", "target", "outcome", "request_id", "gateway")


class AuditEvent(msgspec.Struct, frozen=True, kw_only=True):
    """``actor``: ``key:ID``, ``subject:NAME``, ``admin-token``, ``command`` (a command on the machine),
    ``promptly`` (the application itself) or ``unknown``. ``action``: such as ``cache.purge``. ``target``:
    what was changed, by its public name. ``outcome``: ``begun``, ``done``, or an error's code. ``at``: Unix
    seconds, by the gateway's clock."""

    actor: str
    action: str
    outcome: str
    at: float
    role: str = ""
    tenant: str = ""
    target: str = ""
    request_id: str = ""
    gateway: str = ""

    def bounded(self) -> AuditEvent:
        """The event without texts that are too long, secrets, and surrogates, which UTF-8 cannot hold."""
        texts = {name: _bounded(getattr(self, name)) for name in TEXTS}
        return msgspec.structs.replace(self, **texts)


class AuditLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the file. ``seq`` counts from 1, without gaps, over all files of a log; ``previous``:
    the ``hash`` of the line before, ``hash``: the SHA-256 of all that stands before it in the line."""

    seq: int
    time: str
    actor: str
    role: str
    tenant: str
    action: str
    target: str
    outcome: str
    request_id: str
    gateway: str
    previous: str
    hash: str


def _bounded(text: str) -> str:
    return SECRETS.sub(r"\1***", text[: 2 * MOST_CHARS])[:MOST_CHARS].encode("utf-8", "replace").decode()
