"""Settings of the store of responses."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from serve_app.settings.base import Frozen


class ResponsesSettings(Frozen):
    """What `/v1/responses` and `/v1/conversations` keep. A client that sends `store: false` leaves nothing
    here. docs/apis.md says what is kept, docs/operations.md where."""

    enabled: bool = Field(
        default=True,
        description="`false`: nothing is stored, no process is started for it, and a request that refers to "
        "an earlier response is refused.",
    )
    store: Literal["sqlite"] = Field(default="sqlite", description="Embedded in one file.")
    path: str | None = Field(
        default=None, description="Folder of the file; default: `responses` in the cache folder."
    )
    ttl_s: float = Field(
        default=2_592_000.0,
        gt=0,
        description="Lifetime of a chain of responses, or of a conversation, after the last response or item "
        "that was added to it, seconds; OpenAI's is 30 days.",
    )
    max_entries: int = Field(default=100_000, ge=1, description="Responses and conversations of all tenants.")
    max_bytes: int = Field(default=4_294_967_296, ge=1_000_000, description="Size of all of them together.")
    max_entries_per_tenant: int | None = Field(
        default=None,
        ge=1,
        description="Default: no limit. When the store is full, the tenant with the most entries (or bytes, "
        "where these are full) loses the chain first to which nothing was added for the longest time.",
    )
    max_bytes_per_tenant: int | None = Field(default=None, ge=1024, description="Default: no limit.")
    max_entry_bytes: int = Field(
        default=33_554_432,
        ge=1024,
        description="Size of one response with its input; a larger one is answered and not stored.",
    )
    max_chain: int = Field(
        default=1000, ge=1, description="Responses that one may follow through `previous_response_id`."
    )
    max_chain_bytes: int = Field(
        default=33_554_432, ge=1024, description="Size of what a request may refer to, all items together."
    )
    max_chain_tokens: int = Field(
        default=1_000_000,
        ge=1,
        description="Tokens of the response that a request goes on from, its input included, as the engine "
        "counted them.",
    )
    min_free_disk_bytes: int = Field(
        default=268_435_456, ge=0, description="Free disk space that is left; with less, nothing is stored."
    )
    call_timeout_s: float = Field(
        default=15.0,
        gt=0,
        description="How long a gateway tries to reach the store, which Serve restarts within seconds after "
        "its death. A response waits for it before its last event, and is then sent with `store: false`.",
    )
    max_waiting_calls: int = Field(
        default=256,
        ge=1,
        description="Calls of one gateway that wait so long at once: each holds its request and a place "
        "among `limits.max_concurrent_requests`. Further calls wait for a second.",
    )
    max_background: int = Field(
        default=64, ge=0, description="Background responses that one gateway runs at once."
    )
    max_background_per_tenant: int = Field(default=16, ge=0)
    num_cpus: float = Field(default=0.1, ge=0)
