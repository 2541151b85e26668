"""The token that ``/admin`` asks for where no key is needed (``auth: loopback``).

Whoever can open a connection is not yet the administrator: every program and, through a browser, every page
on the machine can. Whoever can read a file of the owner's is.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serve_app.errors import SettingsError, Unauthorized

TOKEN_VARIABLE = "PROMPTLY_ADMIN_TOKEN"
FILE_VARIABLE = "PROMPTLY_ADMIN_TOKEN_FILE"
FILE_NAME = "admin-token"
LEAST_LENGTH = 20

logger = logging.getLogger("ray.serve")


@dataclass(frozen=True, slots=True)
class AdminToken:
    """Its hash: no gateway holds the token itself. It is long, so a fast hash is as good as a slow one."""

    digest: str

    @classmethod
    def of(cls, token: str) -> AdminToken:
        return cls(_digest(token))

    def check(self, authorization: str | None) -> None:
        """Raises:
        Unauthorized: the header holds no bearer token, or another one.
        """
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Unauthorized(
                "This needs the admin token: send `Authorization: Bearer <token>`. "
                "The start prints it, or names the file that holds it.",
                code="missing_admin_token",
            )
        if not hmac.compare_digest(_digest(token.strip()), self.digest):
            raise Unauthorized("The admin token is not this start's.", code="invalid_admin_token")


def make_token() -> str:
    return secrets.token_urlsafe(32)


def load_admin_token(environment: Mapping[str, str], folder: Path) -> AdminToken:
    """The token of the environment, else that of the file which it names, else that of ``folder``, where one
    is made (and its file named in the log) if there is none.

    Raises:
        SettingsError: it is too short, or its file cannot be read or made.
    """
    given = environment.get(TOKEN_VARIABLE)
    if given is not None:
        return AdminToken.of(checked_token(given, TOKEN_VARIABLE))
    named = environment.get(FILE_VARIABLE)
    path = folder / FILE_NAME if named is None else Path(named)
    try:
        if named is None and not path.exists():
            write_secret(path, make_token())
        token = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{FILE_VARIABLE} = {str(path)!r}: {error}") from None
    logger.info("the admin token is in %s", path)
    return AdminToken.of(checked_token(token, str(path)))


def checked_token(token: str, source: str) -> str:
    """Raises: SettingsError; the message never holds the token."""
    stripped = token.strip()
    if len(stripped) < LEAST_LENGTH or not stripped.isascii() or not stripped.isprintable():
        raise SettingsError(f"{source}: expected at least {LEAST_LENGTH} printable ASCII characters")
    return stripped


def write_secret(path: Path, secret: str) -> None:
    """A new file that only its owner can read. An older one in its place is replaced at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.touch(mode=0o600)
    partial.chmod(0o600)
    partial.write_text(secret, encoding="utf-8")
    partial.replace(path)


def _digest(token: str) -> str:
    return hashlib.sha256(f"promptly-admin:{token}".encode()).hexdigest()
