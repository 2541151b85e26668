"""Parts of PromQL that panels share. ``$model`` and ``$window`` are variables of the dashboards."""

from __future__ import annotations

from dashboards.contract import Query
from dashboards.vllm_names import Vllm
from serve_app.monitoring.figures import ANSWERED
from serve_app.monitoring.metrics import DURATIONS, ITL_PIECES, Metric

OURS = 'model=~"$model"'
OF_VLLM = 'model_name=~"$model"'
SHARES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))


def percentiles(measure: str) -> tuple[Query, ...]:
    """Percentiles by model, of the requests that an engine answered: hits would hide a slow engine."""
    chosen = f'{OURS}, outcome="{ANSWERED}"'
    return tuple(
        Query(quantile(DURATIONS[measure].exported, chosen, share, "model"), f"{name} {{{{model}}}}")
        for name, share in SHARES
    )


def quantile(name: str, chosen: str, share: float, by: str) -> str:
    rates = f"rate({name}_bucket{{{chosen}}}[$window])"
    return f"histogram_quantile({share:g}, sum by (le, {by}) ({rates}))"


def quantile_of_pieces(share: float) -> str:
    """A quantile of the gaps in streams, which are a counter by bounds."""
    rates = f"rate({ITL_PIECES.exported}{{{OURS}}}[$window])"
    return f"histogram_quantile({share:g}, sum by (le, model) ({rates}))"


def rate(metric: Metric | Vllm, by: str, chosen: str = "") -> str:
    """Per second, added up over gateways or engines."""
    base = OF_VLLM if isinstance(metric, Vllm) else OURS if "model" in metric.labels else ""
    labels = ", ".join(each for each in (base, chosen) if each)
    inner = f"rate({metric.exported}{{{labels}}}[$window])"
    return f"sum by ({by}) ({inner})" if by else f"sum({inner})"


def share(part: str, whole: str) -> str:
    """0 where the part has no series yet; nothing where the whole has not moved."""
    return f"(({part}) or 0 * ({whole})) / (({whole}) > 0)"


def or_none(expr: str) -> str:
    """0 for a counter that nothing has happened to: it has no series until then."""
    return f"({expr}) or vector(0)"


def seen_by_gateways(metric: Metric, by: str, chosen: str = OURS) -> str:
    """A gauge that every gateway reports of the same thing."""
    return f"max by ({by}) ({metric.exported}{{{chosen}}})"
