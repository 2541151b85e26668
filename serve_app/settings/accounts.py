"""Settings of keys that are made at run time, and of what is counted for them."""

from __future__ import annotations

from pydantic import Field

from serve_app.settings.base import Frozen


class AccountSettings(Frozen):
    """One process keeps keys, limits and usage in a file, and tells every gateway what changes. docs/teams.md
    says how they are used. It needs `auth` with keys: `auth: {accounts: true}` is enough."""

    path: str | None = Field(
        default=None, description="Folder of the SQLite file; default: `accounts` in the cache folder."
    )
    max_keys: int = Field(
        default=200_000,
        ge=1,
        description="Keys that are kept, revoked ones included. Every gateway has those in use in memory.",
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
    audit_file_bytes: int = Field(
        default=67_108_864, ge=10_000, description="Size at which the audit log goes on in a new file."
    )
    audit_files: int = Field(
        default=32, ge=2, description="Files of the audit log that are kept; the log says which it removed."
    )
    num_cpus: float = Field(default=0.1, ge=0)
