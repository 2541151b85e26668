"""The token that ``/admin`` requires where no API key is used (``auth: loopback``).

Being able to connect does not make a caller the administrator: every program on the machine can connect, and
so can every page through a browser. Being able to read the owner's files does.
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
from serve_app.file_errors import said_of

TOKEN_VARIABLE = "PROMPTLY_ADMIN_TOKEN"
FILE_VARIABLE = "PROMPTLY_ADMIN_TOKEN_FILE"
FILE_NAME = "admin-token"
LEAST_LENGTH = 20

logger = logging.getLogger("ray.serve")


@dataclass(frozen=True, slots=True)
class AdminToken:
    """Holds only a hash, so no gateway has the token itself. The token is long, so a fast hash is enough."""

    digest: str

    @classmethod
    def of(cls, token: str) -> AdminToken:
        return cls(_digest(token))

    def check(self, authorization: str | None) -> None:
        """Raises:
        Unauthorized: the header holds no bearer token, or a wrong one.
        """
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Unauthorized(
                "This needs the admin token: send `Authorization: Bearer <token>`. "
                "The start prints it, or names the file that holds it.",
                code="missing_admin_token",
            )
        if not self.fits(authorization):
            raise Unauthorized("The admin token is not this start's.", code="invalid_admin_token")

    def fits(self, authorization: str | None) -> bool:
        _, _, token = (authorization or "").partition(" ")
        return hmac.compare_digest(_digest(token.strip()), self.digest)


def make_token() -> str:
    return secrets.token_urlsafe(32)


def load_admin_token(environment: Mapping[str, str], folder: Path) -> AdminToken:
    """The token from ``PROMPTLY_ADMIN_TOKEN``, else from the file that ``PROMPTLY_ADMIN_TOKEN_FILE`` names,
    else from the file in ``folder``, which is created with a new token if missing. The log names the file.

    Raises:
        SettingsError: the token is too short, or its file cannot be read or created.
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
        raise SettingsError(f"{FILE_VARIABLE} = {str(path)!r}: {said_of(error)}") from None
    logger.info("the admin token is in %s", path)
    return AdminToken.of(checked_token(token, str(path)))


def checked_token(token: str, source: str) -> str:
    """Raises: SettingsError; the message never holds the token."""
    stripped = token.strip()
    if len(stripped) < LEAST_LENGTH or not stripped.isascii() or not stripped.isprintable():
        raise SettingsError(f"{source}: expected at least {LEAST_LENGTH} printable ASCII characters")
    return stripped


def write_secret(path: Path, secret: str) -> None:
    """Write a file that only its owner can read. An existing file is replaced atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.touch(mode=0o600)
    partial.chmod(0o600)
    partial.write_text(secret, encoding="utf-8")
    partial.replace(path)


def _digest(token: str) -> str:
    return hashlib.sha256(f"promptly-admin:{token}".encode()).hexdigest()
