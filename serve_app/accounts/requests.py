"""What administrators ask for: fields of `/admin/keys`, checked, and never more than they have themselves."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import msgspec

from serve_app.accounts.keys import KeyQuery, ManagedKey, State
from serve_app.api.roles import Role
from serve_app.errors import BadRequest, Conflict, Forbidden
from serve_app.json_errors import no_json
from serve_app.request.auth import KEY_ID_PATTERN, TENANT_PATTERN, Identity, KeyRecord
from serve_app.request.priority import DEFAULT_PRIORITY, FIRST_PRIORITY, LAST_PRIORITY

USER_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}\Z"
"""Users' names appear where tenants' do; most are addresses of e-mail."""

MAX_LIST = 1000
MAX_NETWORKS = 64
"""So few that comparing those of two keys with one another takes a millisecond."""

MAX_NAME_CHARS = 200
MAX_LABEL_CHARS = 200
MAX_PAGE = 1000
MAX_LIFE_S = 100 * 366 * 86_400.0
MAX_OVERLAP_S = 90 * 86_400.0

T = TypeVar("T")

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_CHARS)]
Names = Annotated[tuple[Name, ...], msgspec.Meta(max_length=MAX_LIST)]
Networks = Annotated[tuple[Name, ...], msgspec.Meta(max_length=MAX_NETWORKS)]
Label = Annotated[str, msgspec.Meta(max_length=MAX_LABEL_CHARS, pattern=r"^[^\x00-\x1f\x7f]*\Z")]
User = Annotated[str, msgspec.Meta(pattern=USER_PATTERN)]
Priority = Annotated[int, msgspec.Meta(ge=FIRST_PRIORITY, le=LAST_PRIORITY)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=MAX_LIFE_S)]


class KeyFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be said of a key when it is made, and changed later. ``priority``: the most urgent one.
    ``expires_at``: Unix seconds; ``expires_in_s`` says the same from now on."""

    tenant: Annotated[str, msgspec.Meta(pattern=TENANT_PATTERN)] | msgspec.UnsetType | None = msgspec.UNSET
    user: User | msgspec.UnsetType | None = msgspec.UNSET
    label: Label | msgspec.UnsetType = msgspec.UNSET
    role: Role | msgspec.UnsetType = msgspec.UNSET
    models: Names | msgspec.UnsetType | None = msgspec.UNSET
    endpoints: Names | msgspec.UnsetType | None = msgspec.UNSET
    networks: Networks | msgspec.UnsetType | None = msgspec.UNSET
    priority: Priority | msgspec.UnsetType = msgspec.UNSET
    debug_timing: bool | msgspec.UnsetType = msgspec.UNSET
    expires_at: float | msgspec.UnsetType | None = msgspec.UNSET
    expires_in_s: Seconds | msgspec.UnsetType = msgspec.UNSET
    version: int | None = None


class Rotation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``overlap_s``: how long the old secret goes on working."""

    overlap_s: Annotated[float, msgspec.Meta(ge=0, le=MAX_OVERLAP_S)] | None = None
    version: int | None = None


def fields_of(body: bytes) -> KeyFields:
    """Raises: BadRequest: it names the wrong field."""
    return _decoded(body, KeyFields)


def rotation_of(body: bytes) -> Rotation:
    """Raises: BadRequest."""
    return _decoded(body, Rotation)


def record_with(record: KeyRecord, fields: KeyFields, now: float, models: Collection[str]) -> KeyRecord:
    """The record with these fields. ``models``: all names that there are.

    Raises:
        BadRequest: a field is wrong.
    """
    given = {
        name: value
        for name in ("user", "role", "models", "endpoints", "networks", "debug_timing", "expires_at")
        if (value := getattr(fields, name)) is not msgspec.UNSET
    }
    if fields.priority is not msgspec.UNSET:
        given["best_priority"] = fields.priority
    if fields.expires_in_s is not msgspec.UNSET:
        if fields.expires_at is not msgspec.UNSET:
            raise _wrong("expires_in_s", "`expires_at` says it already")
        given["expires_at"] = now + fields.expires_in_s
    if given.get("expires_at") is not None and not now < given["expires_at"] <= now + MAX_LIFE_S:
        raise _wrong("expires_at", "expected Unix seconds in the future")
    _check_lists(given, models)
    return msgspec.structs.replace(record, **given)


def require_within(record: KeyRecord, maker: Identity) -> None:
    """A key gives no right that it does not have itself.

    Raises:
        Forbidden: it names the field.
    """
    if maker.role is not Role.ADMIN:
        require_keeper(record, maker)
        if record.best_priority < min(maker.best_priority, DEFAULT_PRIORITY):
            raise _forbidden("priority", f"your own is {maker.best_priority}")
        if record.debug_timing and not maker.debug_timing:
            raise _forbidden("debug_timing", "your own key does not have it")
    for name in ("models", "endpoints"):
        own, given = getattr(maker, name), getattr(record, name)
        if own is not None and (given is None or not set(given) <= set(own)):
            raise _forbidden(name, f"your own key has {', '.join(own) or 'none'}")
    if maker.networks is not None and not _inside(record.networks, maker.networks):
        raise _forbidden("networks", f"your own key has {', '.join(maker.networks)}")
    if maker.expires_at is not None and (record.expires_at or maker.expires_at + 1) > maker.expires_at:
        raise _forbidden("expires_at", "your own key ends before")


def rights_of(record: KeyRecord) -> str:
    """What a key may do, for the audit log."""
    role = record.role or (Role.ADMIN if record.admin else Role.USER)
    said = [f"role={role.value}", f"priority={record.best_priority}"]
    for name in ("user", "expires_at", "networks", "models", "endpoints"):
        value = getattr(record, name)
        if value is not None:
            said.append(f"{name}={','.join(value) if isinstance(value, tuple) else value}")
    return " ".join(said)


def require_keeper(record: KeyRecord, maker: Identity) -> None:
    """A tenant's administrator keeps its users' keys. Raises: Forbidden."""
    if maker.role is Role.ADMIN:
        return
    if record.tenant != maker.tenant:
        raise _forbidden("tenant", f"your key keeps those of the tenant {maker.tenant!r}")
    if record.admin or record.role not in (Role.USER, Role.TENANT_ADMIN):
        raise _forbidden("role", "`user` and `tenant_admin` are those of a tenant")


def require_version(key: ManagedKey, version: int | None) -> None:
    """Raises: Conflict: the caller has seen an earlier state."""
    if version is not None and version != key.version:
        raise changed_meanwhile(key)


def changed_meanwhile(key: ManagedKey) -> Conflict:
    return Conflict(
        f"The key {key.record.id} was changed meanwhile: it has version {key.version} now. Look at it, and "
        "ask again.",
        param="version",
        code="version_conflict",
    )


def query_of(given: Mapping[str, str], maker: Identity) -> KeyQuery:
    """A page of keys; of the own tenant, if the caller is its administrator.

    Raises:
        BadRequest: a parameter is unknown or wrong.
    """
    known = ("tenant", "user", "state", "after", "limit")
    for name in given:
        if name not in known:
            raise BadRequest(f"Unknown query parameter {name!r}; known: {', '.join(known)}.", param=name)
    limit = given.get("limit", "100")
    if not re.fullmatch("[0-9]{1,4}", limit) or not 1 <= int(limit) <= MAX_PAGE:
        raise _wrong("limit", f"expected 1 to {MAX_PAGE}")
    state = given.get("state", State.ACTIVE.value)
    if state not in {each.value for each in State}:
        raise _wrong("state", f"expected one of: {', '.join(each.value for each in State)}")
    tenant = given.get("tenant")
    if maker.role is not Role.ADMIN:
        if tenant not in (None, maker.tenant):
            raise _forbidden("tenant", f"your key keeps those of the tenant {maker.tenant!r}")
        tenant = maker.tenant
    return KeyQuery(
        tenant=tenant,
        user=given.get("user"),
        state=State(state),
        after=given.get("after", ""),
        limit=int(limit),
    )


def by_whom(maker: Identity) -> str:
    """An administrator's name as in ``ManagedKey.made_by``."""
    if maker.key_id is None and maker.user:
        return f"subject:{maker.user}"
    return maker.key_id or ""


def shown(key: ManagedKey) -> dict[str, Any]:
    """Everything but hashes."""
    record = key.record
    return {
        "object": "key",
        "id": record.id,
        "tenant": record.tenant,
        "user": record.user,
        "label": key.label,
        "role": (record.role or Role.USER).value,
        "models": record.models,
        "endpoints": record.endpoints,
        "networks": record.networks,
        "priority": record.best_priority,
        "debug_timing": record.debug_timing,
        "expires_at": record.expires_at,
        "created_at": key.created_at,
        "changed_at": key.changed_at,
        "revoked_at": key.revoked_at,
        "old_secret_until": None if record.former is None else record.former.until,
        "made_by": key.made_by,
        "changed_by": key.changed_by,
        "version": key.version,
    }


def require_possible(scope: str) -> None:
    """A limit of what can never exist would bind nobody. What does not exist yet may be limited. A sign-in
    provider names its users in any way, so no user's name is impossible.

    Raises:
        BadRequest: it names what is wrong.
    """
    kind, _, name = scope.partition(":")
    if kind == "key" and not re.match(KEY_ID_PATTERN, name):
        shown = name[:4]  # who gives a whole key in the place of its id must not find it in a log
        raise _wrong(
            "scope",
            f"no key has an id of {len(name)} characters that begins with {shown!r}: expected 12 of 0-9 and "
            "a-f, as `promptly keys list` shows it",
        )
    tenant = name.partition("/")[0] if kind in {"user", "use"} else name
    if kind in {"user", "tenant", "use"} and not re.match(TENANT_PATTERN, tenant):
        raise _wrong(
            "scope",
            f"no tenant can be called {tenant!r}: expected 1 to 64 letters, digits, `.`, `_`, `@` or `-`, "
            "the first a letter or a digit",
        )


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        found = re.search(r"\$\.(\w+)|field `(\w+)`", str(error))
        param = None if found is None else found[1] or found[2]
        raise BadRequest(f"{no_json(error, body)}.", param=param, code="invalid_value") from error


def _check_lists(given: dict[str, Any], models: Collection[str]) -> None:
    for name in given.get("models") or ():
        if name not in models:
            raise _wrong("models", f"there is no model {name!r}; known: {', '.join(models)}")
    for path in given.get("endpoints") or ():
        if not path.startswith("/") or "*" in path[:-1]:
            raise _wrong("endpoints", f"{path!r}: expected a path, or its beginning with a `*` at the end")
    if given.get("networks") is not None:
        given["networks"] = tuple(_network(each) for each in given["networks"])


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError as error:
        raise _wrong("networks", f"{error}; expected an address or CIDR, such as 10.1.0.0/16") from error


def _inside(given: Sequence[str] | None, own: Sequence[str]) -> bool:
    if given is None:
        return False
    outer = [ipaddress.ip_network(each) for each in own]
    return all(_covered(ipaddress.ip_network(each), outer) for each in given)


def _covered(
    inner: ipaddress.IPv4Network | ipaddress.IPv6Network,
    outer: Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network],
) -> bool:
    return any(
        each.version == inner.version
        and each.network_address <= inner.network_address  # type: ignore[operator]  # of one version
        and each.broadcast_address >= inner.broadcast_address  # type: ignore[operator]
        for each in outer
    )


def _wrong(param: str, problem: str) -> BadRequest:
    return BadRequest(f"`{param}`: {problem}.", param=param, code="invalid_value")


def _forbidden(param: str, why: str) -> Forbidden:
    return Forbidden(f"`{param}`: you may not give this: {why}.", param=param, code="more_than_your_own")
