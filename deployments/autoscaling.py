"""The autoscaling policy of engines: Serve's own counters see no request that travels over HTTP."""

from __future__ import annotations

from typing import Any

from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy

from serve_app.scaling import replicas_needed
from serve_app.settings import AutoscalingSettings


class EngineLoadPolicy:
    """Replicas from what the engines report (``Engine.record_autoscaling_stats``)."""

    def __init__(self, target_ongoing_requests: float) -> None:
        self._target = target_ongoing_requests

    def __call__(self, context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
        metrics = context.aggregated_metrics or {}
        running = metrics.get("running", {}).values()
        waiting = metrics.get("waiting", {}).values()
        return replicas_needed(running, waiting, self._target), {}


def autoscaling_config(settings: AutoscalingSettings) -> AutoscalingConfig:
    """Serve's configuration; Serve applies bounds and delays around the policy."""
    return AutoscalingConfig(
        min_replicas=settings.min,
        max_replicas=settings.max,
        target_ongoing_requests=settings.target_ongoing_requests,
        upscale_delay_s=settings.upscale_delay_s,
        downscale_delay_s=settings.downscale_delay_s,
        policy=AutoscalingPolicy(  # type: ignore[no-untyped-call]
            policy_function="deployments.autoscaling:EngineLoadPolicy",
            policy_kwargs={"target_ongoing_requests": settings.target_ongoing_requests},
        ),
    )
