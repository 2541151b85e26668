"""OpenTelemetry's names for what generative models are asked, and ours beside them.

All of OpenTelemetry's are still in development: ``OTEL_SEMCONV_STABILITY_OPT_IN`` chooses between those of
1.36 and the newest, which differ in what names the provider. This is the only module that knows any of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from serve_app.monitoring.intake import operation, outcome_of
from serve_app.monitoring.metrics import DURATIONS, Metric
from serve_app.request.record import UNMATCHED, RequestRecord

OPT_IN_VARIABLE = "OTEL_SEMCONV_STABILITY_OPT_IN"
NEWEST = "gen_ai_latest_experimental"

PROVIDER = "promptly"
"""What answers: OpenTelemetry lists vendors, and lets others name themselves."""

METRIC_NAMES = {
    DURATIONS["e2e"]: "gen_ai.server.request.duration",
    DURATIONS["ttft"]: "gen_ai.server.time_to_first_token",
    DURATIONS["tpot"]: "gen_ai.server.time_per_output_token",
}
"""Names of histograms in seconds, in both versions; every other metric is ``promptly.…``."""

LABELS = {"model": "gen_ai.request.model"}

FAILED = {"outcome": "failed"}

KEPT = "promptly.kept"
"""Why the head's sampling did not decide about a trace: see ``serve_app/monitoring/kept_traces.py``."""


def span_name(record: RequestRecord) -> str:
    """The name of the server's span: there are as many as routes."""
    return f"{record.method} {record.route}" if record.route != UNMATCHED else record.method


def error_type(record: RequestRecord) -> str | None:
    """``error.type``: the error's code, or the status; ``None``: there was no error."""
    if record.error is not None:
        return record.error
    return str(record.status) if record.status >= 400 else None


def is_failure(record: RequestRecord) -> bool:
    """Whether the span's status is an error: of a server's span a client's fault is none."""
    return outcome_of(record) == "failed"


def span_attributes(record: RequestRecord) -> dict[str, str | int | float]:
    """What a finished request's span says of it; never text."""
    known: dict[str, str | int | float | None] = {
        "http.request.method": record.method,
        "http.route": None if record.route == UNMATCHED else record.route,
        "http.response.status_code": record.status or None,
        "error.type": error_type(record),
        "promptly.request_id": record.request_id,
        "promptly.tenant": record.tenant,
        "promptly.cache": record.cache,
        "promptly.experiment": record.experiment,
        "promptly.member": record.member,
        "promptly.client_gone": 1 if record.client_gone else None,
        "promptly.ttft_ms": record.ttft_ms,
        "promptly.overhead_ms": record.overhead_ms,
    }
    if record.model is not None:
        known |= {
            "gen_ai.operation.name": operation(record),
            "gen_ai.request.model": record.model,
            "gen_ai.usage.input_tokens": record.tokens.prompt,
            "gen_ai.usage.output_tokens": record.tokens.output,
            "gen_ai.usage.cache_read.input_tokens": record.tokens.cached,
        }
    return {name: value for name, value in known.items() if value is not None}


def metric_name(metric: Metric) -> str:
    own = metric.name.removeprefix("promptly_").removesuffix("_seconds")
    return METRIC_NAMES.get(metric, f"promptly.{own}")


def provider_attributes(environment: Mapping[str, str]) -> dict[str, str]:
    """What says that this application answered."""
    chosen = {each.strip() for each in environment.get(OPT_IN_VARIABLE, "").split(",")}
    return {"gen_ai.provider.name" if NEWEST in chosen else "gen_ai.system": PROVIDER}


def attributes(metric: Metric, labels: Mapping[str, str], operation: str = "") -> dict[str, str]:
    """The labels of a value, as OpenTelemetry names them; ``operation``: what was asked for."""
    named = {LABELS.get(label, f"promptly.{label}"): value for label, value in labels.items()}
    if metric in METRIC_NAMES:
        named["gen_ai.operation.name"] = operation
        if labels.items() >= FAILED.items():
            named["error.type"] = "_OTHER"
    return named
