"""Settings of keys that are made at run time, and of what is counted for them."""

from __future__ import annotations

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, field_validator

from serve_app.settings.base import Frozen

MOST = 10**15
MOST_MONEY = 10**9


class ScopeLimitSettings(Frozen):
    """What each scope of one kind may use, where it has no limits of its own. 0 lets nothing through."""

    requests_per_minute: int | None = Field(default=None, ge=0, le=MOST, description="In any 60 seconds.")
    tokens_per_minute: int | None = Field(
        default=None, ge=0, le=MOST, description="Of prompts and answers, in any 60 seconds."
    )
    parallel_requests: int | None = Field(default=None, ge=0, le=MOST)
    tokens_per_day: int | None = Field(default=None, ge=0, le=MOST)
    tokens_per_month: int | None = Field(default=None, ge=0, le=MOST)
    money_per_day: float | None = Field(
        default=None,
        ge=0,
        le=MOST_MONEY,
        description="In the currency of `models[].cost_per_million_tokens`.",
    )
    money_per_month: float | None = Field(default=None, ge=0, le=MOST_MONEY)


class DefaultLimitSettings(Frozen):
    """Limits by kind of scope; `promptly limits set` gives one scope its own."""

    key: ScopeLimitSettings = ScopeLimitSettings()
    user: ScopeLimitSettings = ScopeLimitSettings()
    tenant: ScopeLimitSettings = ScopeLimitSettings()
    model: ScopeLimitSettings = ScopeLimitSettings()
    use: ScopeLimitSettings = Field(
        default=ScopeLimitSettings(), description="Of one tenant's use of one model."
    )


class AccountStoreSettings(Frozen):
    """A Postgres server in the place of the SQLite file. It needs the extra `postgres`."""

    url_env: str = Field(
        min_length=1,
        description="Environment variable with its URL, `postgresql://USER:PASSWORD@HOST/DATABASE`. One "
        "application to a schema.",
    )


class AccountSettings(Frozen):
    """One process keeps keys, limits and usage in a file or a database, and tells every gateway what changes.
    docs/teams.md says how they are used. It needs `auth` with keys: `auth: {accounts: true}` is enough."""

    path: str | None = Field(
        default=None,
        description="Folder of the SQLite file and the audit log; default: `accounts` in the cache folder.",
    )
    store: AccountStoreSettings | None = Field(
        default=None, description="Keys, limits and usage are kept there instead; the audit log stays."
    )
    max_keys: int = Field(
        default=200_000,
        ge=1,
        description="Keys that are kept, revoked ones included: the one that was revoked first makes room "
        "for a new one. Every gateway has those in use in memory.",
    )
    max_keys_per_tenant: int = Field(
        default=50_000, ge=1, description="The same of one tenant, so that none can use up the room of all."
    )
    rotation_overlap_s: float = Field(
        default=86_400.0,
        ge=0,
        description="How long the old secret of a rotated key goes on working, where the request does not "
        "say.",
    )
    call_timeout_s: float = Field(
        default=5.0,
        gt=0,
        description="How long a gateway tries to reach the owner for a change, which is then refused (503). "
        "Known keys work meanwhile.",
    )
    min_free_disk_bytes: int = Field(
        default=67_108_864,
        ge=0,
        description="Free disk space that is left; with less, changes are refused (503).",
    )
    usage_keep_days: int = Field(
        default=400, ge=1, description="Days that usage is kept for; older rows are removed."
    )
    usage_max_rows: int = Field(
        default=2_000_000,
        ge=1000,
        description="Rows of usage (of a key, a user, a model and a day) that are kept, some 200 bytes each; "
        "with more, the oldest days go first.",
    )
    usage_waiting_rows: int = Field(
        default=20_000,
        ge=100,
        description="Rows that wait in one gateway while the owner is away. With more, keys of one tenant "
        "share a row; with twice as many, requests are not counted, which a log line and a metric say.",
    )
    usage_metrics_tenants: int = Field(
        default=100,
        ge=0,
        description="Tenants with metrics of their own, in each gateway those that came first; the others "
        "share the name `other`.",
    )
    tenant_changes_per_minute: int = Field(
        default=120,
        ge=1,
        description="Changes that a tenant's own administrators may try, at each gateway. Each has two lines "
        "in the audit log.",
    )
    audit_file_bytes: int = Field(
        default=67_108_864, ge=10_000, description="Size at which the audit log goes on in a new file."
    )
    audit_files: int = Field(
        default=32, ge=2, description="Files of the audit log that are kept; the log says which it removed."
    )
    limits: DefaultLimitSettings = DefaultLimitSettings()
    time_zone: str = Field(
        default="UTC",
        description="In which days and months begin, of tenants without a zone of their own: an IANA name.",
    )
    cached_rate: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="The part of its tokens and of its price that an answer from the cache costs.",
    )
    num_cpus: float = Field(default=0.1, ge=0)

    @field_validator("time_zone")
    @classmethod
    def _is_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(f"{name!r} is no IANA name such as `Europe/Berlin`") from None
        return name
