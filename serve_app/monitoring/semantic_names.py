"""OpenTelemetry's names for what generative models are asked, and ours beside them.

All of OpenTelemetry's are still in development: ``OTEL_SEMCONV_STABILITY_OPT_IN`` chooses between those of
1.36 and the newest, which differ in what names the provider. This is the only module that knows any of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from serve_app.monitoring.metrics import DURATIONS, Metric

OPT_IN_VARIABLE = "OTEL_SEMCONV_STABILITY_OPT_IN"
NEWEST = "gen_ai_latest_experimental"

PROVIDER = "promptly"
"""What answers: OpenTelemetry lists vendors, and lets others name themselves."""

METRIC_NAMES = {
    DURATIONS["e2e"]: "gen_ai.server.request.duration",
    DURATIONS["ttft"]: "gen_ai.server.time_to_first_token",
    DURATIONS["tpot"]: "gen_ai.server.time_per_output_token",
}
"""Of histograms in seconds, in both versions; every other metric is ``promptly.…``."""

LABELS = {"model": "gen_ai.request.model"}

FAILED = {"outcome": "failed"}


def metric_name(metric: Metric) -> str:
    own = metric.name.removeprefix("promptly_").removesuffix("_seconds")
    return METRIC_NAMES.get(metric, f"promptly.{own}")


def provider_attributes(environment: Mapping[str, str]) -> dict[str, str]:
    """What says that this application answered."""
    chosen = {each.strip() for each in environment.get(OPT_IN_VARIABLE, "").split(",")}
    return {"gen_ai.provider.name" if NEWEST in chosen else "gen_ai.system": PROVIDER}


def attributes(metric: Metric, labels: Mapping[str, str]) -> dict[str, str]:
    """The labels of a value, as OpenTelemetry names them."""
    named = {LABELS.get(label, f"promptly.{label}"): value for label, value in labels.items()}
    if metric in METRIC_NAMES:
        named["gen_ai.operation.name"] = "chat"
        if labels.items() >= FAILED.items():
            named["error.type"] = "_OTHER"
    return named
