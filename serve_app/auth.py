"""API keys: which tenant a key belongs to. Keys are kept as salted hashes only.

A key is 32 random bytes, so a single SHA-256 is as good as a slow hash: there is nothing to guess.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from serve_app.errors import Forbidden, SettingsError, Unauthorized
from serve_app.settings import KeySettings

KEY_PREFIX = "pk"
DEFAULT_TENANT = "default"
MAKE_ONE = "make one with scripts/make_key.py"


Hexadecimal = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]


class KeyRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One key as stored. ``id`` is the public part of the key."""

    id: str
    tenant: str
    salt: str
    hash: Hexadecimal
    admin: bool = False


@dataclass(frozen=True, slots=True)
class Identity:
    """Who asks."""

    tenant: str
    admin: bool


def make_key(tenant: str, *, admin: bool = False) -> tuple[str, KeyRecord]:
    """A new key (shown once) and the record to store."""
    key_id, secret, salt = secrets.token_hex(6), secrets.token_urlsafe(32), secrets.token_hex(16)
    key = f"{KEY_PREFIX}-{key_id}-{secret}"
    return key, KeyRecord(key_id, tenant, salt, hash_key(key, salt), admin)


def hash_key(key: str, salt: str) -> str:
    return hashlib.sha256(f"{salt}:{key}".encode()).hexdigest()


def load_records(settings: KeySettings, environment: Mapping[str, str]) -> tuple[KeyRecord, ...]:
    """The records of every source in ``settings``.

    Raises:
        SettingsError: a source is missing, unreadable or empty; the message names it, never a key.
    """
    records: list[KeyRecord] = []
    if settings.keys_file is not None:
        records += _records_in_file(Path(settings.keys_file).expanduser())
    if settings.keys_env is not None:
        records += _records_in_environment(settings.keys_env, environment)
    return tuple(records)


class KeyRing:
    """Answers "whose key is this?" in time that does not depend on how much of a key is right."""

    def __init__(self, records: Sequence[KeyRecord]) -> None:
        self._records = tuple(records)

    def identify(self, authorization: str | None) -> Identity:
        """The identity behind an ``Authorization`` header.

        Raises:
            Unauthorized: no bearer key, or one that is not known.
        """
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise Unauthorized("No API key: send `Authorization: Bearer <key>`.", code="missing_api_key")
        found = self._find(key.strip())
        if found is None:
            raise Unauthorized("The API key is not known.", code="invalid_api_key")
        return Identity(found.tenant, found.admin)

    def _find(self, key: str) -> KeyRecord | None:
        """Every record is compared, with no early end; a hash of 64 characters costs a microsecond."""
        found = None
        for record in self._records:
            if hmac.compare_digest(hash_key(key, record.salt), record.hash):
                found = record
        return found


def require_admin(identity: Identity) -> None:
    """Raises: Forbidden: a known key without the right."""
    if not identity.admin:
        raise Forbidden("This needs an admin key.", code="admin_only")


def _records_in_file(path: Path) -> list[KeyRecord]:
    try:
        records = msgspec.json.decode(path.read_bytes(), type=list[KeyRecord])
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise SettingsError(f"auth.keys_file = {str(path)!r}: {error}; {MAKE_ONE}") from None
    if not records:
        raise SettingsError(f"auth.keys_file = {str(path)!r}: holds no key; {MAKE_ONE}")
    return records


def _records_in_environment(variable: str, environment: Mapping[str, str]) -> list[KeyRecord]:
    """``tenant=key,tenant=key``; a tenant named ``admin`` may administer.

    The salt is the tenant's name: it must be the same in every process that reads the variable.
    """
    pairs = [part.partition("=") for part in environment.get(variable, "").split(",") if part.strip()]
    if not pairs or any(not tenant.strip() or not key.strip() for tenant, _, key in pairs):
        raise SettingsError(f"auth.keys_env = {variable!r}: expected it to hold `tenant=key,tenant=key`")
    # Header bytes reach the key ring as Latin-1: a key beyond ASCII could never match.
    if not all(key.isascii() for _, _, key in pairs):
        raise SettingsError(f"auth.keys_env = {variable!r}: a key holds characters that are not ASCII")
    stripped = [(tenant.strip(), key.strip()) for tenant, _, key in pairs]
    return [
        KeyRecord(f"env-{tenant}", tenant, tenant, hash_key(key, tenant), tenant == "admin")
        for tenant, key in stripped
    ]
