"""Settings of alerts."""

from __future__ import annotations

from typing import Self

from pydantic import Field, field_validator, model_validator

from serve_app.settings.base import Frozen
from serve_app.settings.urls import can_be_called


class AlertSettings(Frozen):
    """When something is wrong with a model's requests. Each alert is judged for every model over all
    gateways, by the last five minutes unless its name says otherwise; `null` turns one off.

    It is long because every alert has a threshold of its own."""

    enabled: bool = True
    period_s: float = Field(default=10.0, gt=0, description="How often alerts are judged.")
    hold_s: float = Field(
        default=30.0, ge=0, description="How long a threshold must be exceeded before an alert fires."
    )
    clear_s: float = Field(
        default=60.0, ge=0, description="How long it must be kept again before the alert clears."
    )
    clear_share: float = Field(
        default=0.9,
        gt=0,
        le=1,
        description="An alert that fires clears at this share of its threshold, so that a value near the "
        "threshold does not make it flap.",
    )
    min_requests: int = Field(
        default=20, ge=1, description="Requests that an alert about medians, p95 or shares needs."
    )
    min_requests_p99: int = Field(default=100, ge=1, description="Requests that an alert about a p99 needs.")
    ttft_p95_ms: float | None = Field(default=1000.0, gt=0, description="p95 of the time to first token.")
    ttft_p99_ms: float | None = Field(default=3000.0, gt=0, description="p99 of the time to first token.")
    e2e_p95_ms: float | None = Field(
        default=None,
        gt=0,
        description="p95 from arrival to the last byte. Off: how long an answer takes says first how long "
        "the answer is; 1000 suits short ones.",
    )
    e2e_p99_ms: float | None = Field(
        default=None, gt=0, description="p99 of the same; 3000 suits short answers."
    )
    p50_rise: float | None = Field(
        default=1.5, gt=1, description="Median TTFT of 5 minutes, as a multiple of that of 30 minutes."
    )
    p50_rise_above_ms: float = Field(
        default=20.0, ge=0, description="A median TTFT below this is no reason for that alert."
    )
    hit_rate_drop: float | None = Field(
        default=0.5,
        gt=0,
        lt=1,
        description="Share of the cache's hit rate of 30 minutes that is missing in the last 5.",
    )
    hit_rate_min: float = Field(
        default=0.05,
        gt=0,
        le=1,
        description="A hit rate of 30 minutes below this is no reason for that alert.",
    )
    error_share: float | None = Field(
        default=0.05, gt=0, lt=1, description="Share of requests that failed, client errors and 429 left out."
    )
    token_spike: float | None = Field(
        default=3.0,
        gt=1,
        lt=6,
        description="Tokens a second of 5 minutes, as a multiple of those of 30 minutes.",
    )
    token_spike_min: int = Field(
        default=100_000, ge=1, description="Fewer tokens in 5 minutes are no reason for that alert."
    )
    refusal_rise: float | None = Field(
        default=0.2,
        gt=0,
        lt=1,
        description="Share of captured answers that refuse, 5 minutes less 30 minutes (`feedback.capture`).",
    )
    language_rise: float | None = Field(
        default=0.2,
        gt=0,
        lt=1,
        description="Share of captured answers in another language than their question, 5 minutes less 30.",
    )
    length_change: float | None = Field(
        default=2.0,
        gt=1,
        description="Mean length of captured answers of 5 minutes, as a multiple of that of 30 minutes, or "
        "the reverse.",
    )
    score_drop: float | None = Field(
        default=0.1,
        gt=0,
        lt=1,
        description="By how much the mean score of the judge falls, 30 minutes less 5 minutes.",
    )
    stalled_streams: int | None = Field(
        default=3, ge=1, description="Streams cut in 5 minutes because an engine sent nothing any more."
    )
    runaway_generations: int | None = Field(
        default=3, ge=1, description="Answers in 5 minutes of `runaway_tokens` or more."
    )
    runaway_tokens: int = Field(default=16_384, ge=1)
    looping_sessions: int | None = Field(
        default=1,
        ge=1,
        description="Sessions that in 5 minutes began to repeat a request (an agent in a loop).",
    )
    loop_requests: int = Field(
        default=8, ge=2, description="So many requests of a session with the same last message are a loop ..."
    )
    loop_within_s: float = Field(default=60.0, gt=0, description="... if they come within this time.")
    webhook_url: str | None = Field(
        default=None,
        description="Gets a POST with JSON when an alert fires and when it clears. If it holds a token, the "
        "file is a secret; logs name its host only.",
    )
    webhook_timeout_s: float = Field(default=5.0, gt=0, description="For one attempt.")
    webhook_attempts: int = Field(default=4, ge=1, description="With 1, 2, 4 … seconds between them.")

    @field_validator("webhook_url")
    @classmethod
    def _is_url(cls, url: str | None) -> str | None:
        if url is None:
            return None
        if not can_be_called(url):
            raise ValueError("expected a URL such as `https://hooks.example.com/path`")
        return url

    @model_validator(mode="after")
    def _is_ordered(self) -> Self:
        for lower, higher in (("ttft_p95_ms", "ttft_p99_ms"), ("e2e_p95_ms", "e2e_p99_ms")):
            p95, p99 = getattr(self, lower), getattr(self, higher)
            if p95 is not None and p99 is not None and p95 > p99:
                raise ValueError(f"`{lower}` is above `{higher}`: a p99 is never below the p95")
        return self
