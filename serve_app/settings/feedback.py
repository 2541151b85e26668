"""Settings of what people say of answers, and of the requests that it can be said of."""

from __future__ import annotations

from typing import Self

from pydantic import Field, field_validator, model_validator

from serve_app.settings.base import Frozen
from serve_app.settings.guardrails import MaskSettings


class JudgeSettings(Frozen):
    """A model that grades some of the captured answers, as they are stored, when its engines are idle."""

    model: str = Field(description="Any name of a model that is served. It is sent questions and answers.")
    share: float = Field(default=0.05, gt=0, le=1, description="Of the captured answers.")
    max_per_minute: float = Field(default=30.0, gt=0, description="In each gateway, one at a time.")
    max_wait_s: float = Field(default=600.0, gt=0, description="For an idle engine; then it is not judged.")
    timeout_s: float = Field(default=60.0, gt=0)


class CaptureSettings(Frozen):
    """Requests of the named tenants are stored with their answers, sealed. What is stored was seen by the
    guardrails first, as clients were sent it."""

    tenants: dict[str, float] = Field(
        description="The share of each tenant's requests that is captured, 0 to 1; nothing of others. "
        "Sessions are captured whole. Without keys the one tenant is `default`."
    )
    ttl_s: float = Field(default=604_800.0, gt=0, description="How long a captured request is kept.")
    max_bytes: int = Field(
        default=1_073_741_824,
        ge=1024,
        description="Size of all that is captured. When it is used up, nothing more is captured until "
        "something has expired or was erased; `promptly_capture_stopped` is 1 then.",
    )
    max_entry_bytes: int = Field(
        default=262_144, ge=1024, description="Of one request with its answer; larger ones are left out."
    )
    max_waiting_bytes: int = Field(
        default=33_554_432,
        ge=1024,
        description="What waits in one gateway to be stored; what comes then is left out, and counted.",
    )
    judge: JudgeSettings | None = None
    mask: MaskSettings | None = Field(
        default=None, description="Masks what is stored, as the guardrail of that name does."
    )
    redact: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$",
        description="A Python function, `module:name`, that is given each text and returns what is stored of "
        "it. If it fails, the request is not captured.",
    )

    @field_validator("tenants")
    @classmethod
    def _are_shares(cls, tenants: dict[str, float]) -> dict[str, float]:
        for tenant, share in tenants.items():
            if not 0 <= share <= 1:
                raise ValueError(f"{tenant!r}: {share} is no share: expected 0 to 1")
        return tenants


class FeedbackSettings(Frozen):
    """One process keeps what people say of answers (`POST /v1/feedback`) in a file. Off unless this section
    is there; `feedback: {}` is enough. docs/feedback.md says what is stored, how long, and who may read
    it."""

    path: str | None = Field(
        default=None, description="Folder of the SQLite file; default: `feedback` in the cache folder."
    )
    keep_days: float = Field(default=90.0, gt=0, description="How long what was said of an answer is kept.")
    request_ttl_s: float = Field(
        default=604_800.0,
        gt=0,
        description="How long after a request something may be said of its answer. Until then its id, times, "
        "counts and model are kept, and no text.",
    )
    max_requests: int = Field(
        default=1_000_000,
        ge=1,
        description="Such requests of all tenants, some 300 bytes each. Beyond, the tenant with the most "
        "loses its oldest.",
    )
    max_per_tenant: int = Field(
        default=100_000, ge=1, description="What is kept of one tenant's feedback; the oldest goes first."
    )
    max_text_chars: int = Field(default=4000, ge=0, le=1_000_000, description="Of `text`.")
    max_correction_chars: int = Field(default=32_000, ge=0, le=1_000_000, description="Of `correction`.")
    max_messages_bytes: int = Field(
        default=262_144, ge=0, description="Of `messages`: what was asked, sent with a correction."
    )
    max_waiting_requests: int = Field(
        default=20_000,
        ge=1,
        description="Finished requests of one gateway that wait while their owner is away. Nothing can be "
        "said of further ones; `promptly_feedback_dropped` counts them.",
    )
    encryption_key_env: str | None = Field(
        default=None,
        description="Variable with 32 random bytes in base64 (`openssl rand -base64 32`): texts are then "
        "stored sealed (AES-256-GCM), each tenant's with a key of its own. Several keys separated by commas: "
        "the first one seals, all open.",
    )
    capture: CaptureSettings | None = Field(
        default=None,
        description="Stores requests with their answers: for golden cases and replays. It needs "
        "`encryption_key_env`.",
    )
    min_free_disk_bytes: int = Field(
        default=268_435_456, ge=0, description="Free disk space that is left; with less, nothing is stored."
    )
    call_timeout_s: float = Field(
        default=5.0, gt=0, description="How long a gateway tries to reach the owner of the file."
    )
    num_cpus: float = Field(default=0.1, ge=0)

    @model_validator(mode="after")
    def _captures_are_sealed(self) -> Self:
        if self.capture is not None and self.encryption_key_env is None:
            raise ValueError("`capture` needs `encryption_key_env`: what is captured is stored sealed")
        return self
