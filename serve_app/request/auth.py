"""API keys and the tenants they belong to. Keys are stored only as salted hashes.

A key is 32 random bytes and cannot be guessed, so a single SHA-256 is as good as a slow hash.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec

from serve_app.api.roles import Role
from serve_app.errors import AccountsUnavailable, Forbidden, SettingsError, Unauthorized
from serve_app.file_errors import said_of
from serve_app.request.priority import DEFAULT_PRIORITY, FIRST_PRIORITY, LAST_PRIORITY
from serve_app.settings import KeySettings

KEY_PREFIX = "pk"
DEFAULT_TENANT = "default"
MAKE_ONE = "make one with scripts/make_key.py"

MIN_GIVEN_KEY_CHARS = 20
"""Least length of a key that an operator chose (in the environment): a shorter one could be guessed."""

MAX_KEY_CHARS = 256
"""Four times the length of our own keys. A longer bearer is refused before any hash is computed."""

TENANT_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}\Z"
"""Tenant names appear in logs, file names and partitions, so they hold no space and no control character."""

KEY_ID_PATTERN = r"^[0-9a-f]{12}\Z"

GIVEN_SALT = "promptly-given-key"
"""Keys from the environment carry no id, so they share one salt and a look-up takes one hash. The salt is the
same in every process, so the records are too: a repeated deployment does not look like a changed one."""

Hexadecimal = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
KeyId = Annotated[str, msgspec.Meta(pattern=KEY_ID_PATTERN)]
Tenant = Annotated[str, msgspec.Meta(pattern=TENANT_PATTERN)]
Priority = Annotated[int, msgspec.Meta(ge=FIRST_PRIORITY, le=LAST_PRIORITY)]


class FormerSecret(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The secret that a key had before it was rotated; it works until then (Unix seconds)."""

    salt: str
    hash: Hexadecimal
    until: float


class KeyRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One key as stored. ``id`` is the public part of the key.

    ``best_priority`` is the most urgent priority its requests may have (0 goes first); by default no better
    than a request that names none. ``debug_timing``: it may see all of ``Server-Timing``. The others are
    those of ``Identity``; without ``role`` it is that of ``admin``.
    """

    id: KeyId
    tenant: Tenant
    salt: str
    hash: Hexadecimal
    admin: bool = False
    best_priority: Priority = DEFAULT_PRIORITY
    debug_timing: bool = False
    role: Role | None = None
    user: str | None = None
    models: tuple[str, ...] | None = None
    endpoints: tuple[str, ...] | None = None
    networks: tuple[str, ...] | None = None
    expires_at: float | None = None
    former: FormerSecret | None = None


MOST_ENDED = 10_000
"""Revoked keys that are remembered: changes that overtake one another are seconds apart at most."""


class ManagedKeys:
    """The keys that are made at run time, as this process knows them: by id, however many there are."""

    def __init__(self) -> None:
        self._by_id: dict[str, KeyRecord] = {}
        self._ended: OrderedDict[str, None] = OrderedDict()
        self.are_known = False
        """All of them came here once."""

    def get(self, key_id: str) -> KeyRecord | None:
        return self._by_id.get(key_id)

    def change(self, records: Iterable[KeyRecord], revoked: Iterable[str]) -> None:
        """A revocation is a key's last change: an older one that comes late does not bring it back."""
        self._by_id |= {record.id: record for record in records if record.id not in self._ended}
        for key_id in revoked:
            self._by_id.pop(key_id, None)
            self._ended[key_id] = None
        while len(self._ended) > MOST_ENDED:
            self._ended.popitem(last=False)

    def replace(self, by_id: dict[str, KeyRecord]) -> None:
        """With all of a store, which may be another one."""
        self._by_id, self.are_known = by_id, True
        self._ended.clear()

    def __len__(self) -> int:
        return len(self._by_id)


@dataclass(frozen=True, slots=True)
class KeySources:
    """The key records of an application: those from the environment, and those of a file that may change.

    ``in_file`` are the file's records when it was last read; ``file`` is an absolute path.
    """

    given: tuple[KeyRecord, ...] = ()
    in_file: tuple[KeyRecord, ...] = ()
    file: Path | None = None

    def ring(self, managed: ManagedKeys | None = None) -> KeyRing:
        """A key ring over all records, and over those that are made at run time."""
        return KeyRing(self.in_file, given=self.given, managed=managed)

    def read_again(self) -> KeySources:
        """The same sources with the file read again. The file may be empty: its last key was removed.

        Raises:
            SettingsError: the file is missing, unreadable or not a keys file; the message holds no key.
        """
        return self if self.file is None else replace(self, in_file=_records_in_file(self.file))


@dataclass(frozen=True, slots=True)
class Identity:
    """Who sends a request, and what they may do. It stands for one request: keys change meanwhile.

    ``key_id``: the public part of the key; ``None`` without keys. ``user``: of the tenant, where the key
    names one. ``models``, ``endpoints``: all that it may use (see ``require_model``, ``require_endpoint``);
    ``None``: everything. ``networks``: where it may come from, in CIDR notation. ``expires_at``: Unix
    seconds.
    """

    tenant: str
    role: Role = Role.USER
    best_priority: int = DEFAULT_PRIORITY
    debug_timing: bool = False
    key_id: str | None = None
    user: str | None = None
    models: tuple[str, ...] | None = None
    endpoints: tuple[str, ...] | None = None
    networks: tuple[str, ...] | None = None
    expires_at: float | None = None

    @property
    def admin(self) -> bool:
        return self.role is Role.ADMIN


def make_key(
    tenant: str,
    *,
    admin: bool = False,
    best_priority: int = DEFAULT_PRIORITY,
    debug_timing: bool = False,
    **rights: Any,
) -> tuple[str, KeyRecord]:
    """A new key (shown once) and the record to store. ``rights``: further fields of the record.

    Raises:
        ValueError: ``tenant`` is not a valid name.
    """
    if not re.match(TENANT_PATTERN, tenant):
        raise ValueError(f"{tenant!r} is no tenant's name: expected {TENANT_PATTERN}")
    key_id = secrets.token_hex(6)
    key, salt, hashed = new_secret_of(key_id)
    return key, KeyRecord(key_id, tenant, salt, hashed, admin, best_priority, debug_timing, **rights)


def new_secret_of(key_id: str) -> tuple[str, str, str]:
    """A new key with this id (shown once), and the salt and hash to store."""
    key, salt = f"{KEY_PREFIX}-{key_id}-{secrets.token_urlsafe(32)}", secrets.token_hex(16)
    return key, salt, hash_key(key, salt)


def hash_key(key: str, salt: str) -> str:
    return hashlib.sha256(f"{salt}:{key}".encode()).hexdigest()


def load_keys(settings: KeySettings, environment: Mapping[str, str]) -> KeySources:
    """The records of every source in ``settings``.

    Raises:
        SettingsError: a source is missing, unreadable or empty; the message names it, never a key.
    """
    given: tuple[KeyRecord, ...] = ()
    if settings.keys_env is not None:
        given = _records_in_environment(settings.keys_env, environment)
    if settings.keys_file is None:
        return KeySources(given)  # none at all where every key is made at run time
    path = Path(settings.keys_file).expanduser().absolute()
    records = _records_in_file(path)
    if not records:
        raise SettingsError(f"auth.keys_file = {str(path)!r}: holds no key; {MAKE_ONE}")
    return KeySources(given, records, path)


class KeyRing:
    """Finds the owner of a key, with the same few hashes for one record and for many, and in time that does
    not depend on how much of a key is right.

    Our own keys name their record (``pk-ID-SECRET``). A ``given`` key has no id: it is found by its hash,
    keyed with a secret of this ring, so that no attacker can choose keys whose hashes leak information
    through timing. ``compute`` hashes a key with a salt.
    """

    def __init__(
        self,
        records: Sequence[KeyRecord],
        *,
        given: Sequence[KeyRecord] = (),
        managed: ManagedKeys | None = None,
        compute: Callable[[str, str], str] = hash_key,
    ) -> None:
        self._compute = compute
        self._by_id = {record.id: record for record in records}
        self._secret = secrets.token_bytes(32)
        self._given = {self._digest(record.hash): record for record in given}
        self._managed = managed
        tenants = {record.tenant for record in (*records, *given)}
        self._has_several = managed is not None or len(tenants) > 1
        self._unknown_key = KeyRecord("", "", secrets.token_hex(16), "0" * 64)

    @property
    def has_several_tenants(self) -> bool:
        return self._has_several

    def identify(self, authorization: str | None) -> Identity:
        """The identity behind an ``Authorization`` header.

        Raises:
            Unauthorized: there is no bearer key, or the key is not known.
            AccountsUnavailable: keys are made at run time, and did not come here yet.
        """
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise Unauthorized("No API key: send `Authorization: Bearer <key>`.", code="missing_api_key")
        found = self._find(key.strip())
        if found is None:
            if self._managed is not None and not self._managed.are_known:
                raise AccountsUnavailable("its keys are not known here yet")
            raise Unauthorized("The API key is not known.", code="invalid_api_key")
        return _identity(found)

    def _find(self, key: str) -> KeyRecord | None:
        if len(key) > MAX_KEY_CHARS:
            return None
        named = self._named(_id_of(key))
        if hmac.compare_digest(self._compute(key, named.salt), named.hash):
            return named
        former = named.former
        if former is not None and hmac.compare_digest(self._compute(key, former.salt), former.hash):
            ends = former.until if named.expires_at is None else min(former.until, named.expires_at)
            return msgspec.structs.replace(named, expires_at=ends)
        return self._given.get(self._digest(self._compute(key, GIVEN_SALT))) if self._given else None

    def _named(self, key_id: str) -> KeyRecord:
        found = self._by_id.get(key_id)
        if found is None and self._managed is not None:
            found = self._managed.get(key_id)
        return self._unknown_key if found is None else found

    def _digest(self, hashed: str) -> bytes:
        return hmac.digest(self._secret, hashed.encode(), "sha256")


def credentials_of(headers: Mapping[str, str]) -> str | None:
    """The value for ``identify``. Anthropic's clients send the key as ``x-api-key``."""
    key = headers.get("x-api-key")
    given = headers.get("authorization")
    return f"Bearer {key}" if given is None and key is not None else given


def require_unexpired(identity: Identity, now: float) -> None:
    """``now``: Unix seconds. Raises: Unauthorized: its time is over."""
    if identity.expires_at is not None and now >= identity.expires_at:
        raise Unauthorized("The API key has expired.", code="expired_api_key")


def require_role(identity: Identity, roles: Collection[Role]) -> None:
    """Raises: Forbidden: the key is known, but only other roles may do this."""
    if identity.role in roles:
        return
    if Role.USER in roles:
        raise Forbidden(
            f"A key with the role `{identity.role.value}` may not use this path.", code="role_not_allowed"
        )
    raise Forbidden("This needs an admin key.", code="admin_only")


def require_endpoint(identity: Identity, path: str) -> None:
    """A path is named in full, or by its beginning with a `*`. Raises: Forbidden."""
    allowed = identity.endpoints
    if allowed is None or any(_covers(each, path) for each in allowed):
        return
    raise Forbidden(
        f"This API key may not use {path}. It may use: {', '.join(allowed) or 'none'}.",
        code="endpoint_not_allowed",
    )


def require_model(identity: Identity, *names: str) -> None:
    """``names``: the model's name as it was asked for, and its own; one of them must be allowed.

    Raises:
        Forbidden: the key may use other models only.
    """
    if may_use(identity, *names):
        return
    raise Forbidden(
        f"This API key may not use the model {names[0]!r}. "
        f"It may use: {', '.join(identity.models or ()) or 'none'}.",
        param="model",
        code="model_not_allowed",
    )


def may_use(identity: Identity, *names: str) -> bool:
    """Whether it may use the model that has these names."""
    allowed = identity.models
    return allowed is None or any(name in allowed for name in names)


def _covers(endpoint: str, path: str) -> bool:
    return path.startswith(endpoint[:-1]) if endpoint.endswith("*") else path == endpoint


def decode_records(encoded: bytes) -> tuple[KeyRecord, ...]:
    """The records in a keys file.

    Raises:
        ValueError: this is not a keys file, or two records share an id; the message holds no key.
    """
    try:
        records = msgspec.json.decode(encoded, type=tuple[KeyRecord, ...])
    except UnicodeDecodeError as error:
        raise ValueError("not UTF-8") from error
    for twice in _repeated(record.id for record in records):
        raise ValueError(f"two records have the id {twice!r}")
    return records


def _identity(record: KeyRecord) -> Identity:
    return Identity(
        record.tenant,
        record.role or (Role.ADMIN if record.admin else Role.USER),
        record.best_priority,
        record.debug_timing,
        key_id=record.id,
        user=record.user,
        models=record.models,
        endpoints=record.endpoints,
        networks=record.networks,
        expires_at=record.expires_at,
    )


def _id_of(key: str) -> str:
    """The id part of a key, or "" if the key does not have our form."""
    parts = key.split("-", 2)
    return parts[1] if len(parts) == 3 and parts[0] == KEY_PREFIX else ""


def _repeated(values: Iterable[str]) -> list[str]:
    return [value for value, times in Counter(values).items() if times > 1]


def _records_in_file(path: Path) -> tuple[KeyRecord, ...]:
    try:
        return decode_records(path.read_bytes())
    except (OSError, ValueError) as error:
        raise SettingsError(f"auth.keys_file = {str(path)!r}: {said_of(error)}; {MAKE_ONE}") from None


def _records_in_environment(variable: str, environment: Mapping[str, str]) -> tuple[KeyRecord, ...]:
    """Parse ``tenant=key,tenant=key``; the tenant named ``admin`` gets admin rights."""

    def wrong(problem: str) -> SettingsError:
        return SettingsError(f"auth.keys_env = {variable!r}: {problem}")

    pairs = [part.partition("=") for part in environment.get(variable, "").split(",") if part.strip()]
    stripped = [(tenant.strip(), key.strip()) for tenant, _, key in pairs]
    if not stripped or any(not tenant or not key for tenant, key in stripped):
        raise wrong("expected it to hold `tenant=key,tenant=key`")
    # Header bytes reach the key ring as Latin-1: a key that is not ASCII could never match.
    if not all(key.isascii() for _, key in stripped):
        raise wrong("a key holds characters that are not ASCII")
    for tenant, key in stripped:
        if not re.match(TENANT_PATTERN, tenant):
            # The message leaves out the name: after a key with a comma in it, the key's rest stands there.
            raise wrong(f"what stands before a `=` is no tenant's name: expected {TENANT_PATTERN}")
        if not MIN_GIVEN_KEY_CHARS <= len(key) <= MAX_KEY_CHARS:
            raise wrong(
                f"a key of tenant {tenant!r} has {len(key)} characters: expected "
                f"{MIN_GIVEN_KEY_CHARS} to {MAX_KEY_CHARS}; {MAKE_ONE}"
            )
    records = tuple(
        KeyRecord(f"env-{tenant}", tenant, GIVEN_SALT, hash_key(key, GIVEN_SALT), tenant == "admin")
        for tenant, key in dict.fromkeys(stripped)
    )
    if _repeated(record.hash for record in records):
        raise wrong("two tenants have the same key")
    return records
