"""A version of each part of the application that holds state or loads a model. Serve replaces the replicas of
a part only when its version changes; the gateways have none, because they read every setting."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from serve_app.settings import ModelSettings, Settings
from serve_app.settings.base import Frozen
from serve_app.settings.deployment_names import ENGINE, PREFILL, engine_deployment
from serve_app.version import VERSION

NOT_READ_BY_ENGINES = frozenset(
    {
        "aliases",
        "upstreams",
        "replicas",
        "routing",
        "hedge",
        "cache",
        "cache_ttl_s",
        "cache_threshold",
        "cost_per_million_tokens",
        "cost_per_device_hour",
    }
)
"""Settings of a model that only gateways and Serve's controller read."""

KEEPERS: Mapping[str, str] = {
    "Embedder": "embedder",
    "SemanticCache": "cache",
    "Responses": "responses",
    "Accounts": "accounts",
    "Feedback": "feedback",
}
"""The deployments around the engines, with their sections."""


def part_versions(settings: Settings) -> dict[str, str]:
    """Versions by the name of the deployment. Promptly's own
    version is in all of them: new code replaces everything."""
    ports = repr(settings.network.private_ports)
    found = {}
    for name, section in KEEPERS.items():
        value: Frozen | None = getattr(settings, section)
        if value is not None and getattr(value, "enabled", True):
            found[name] = _digest(name, value.model_dump(mode="json"), ports)
    for model in settings.engine_models:
        if model.engine is not None:
            found[engine_deployment(model.id)] = _digest("Engine", engine_part(model), ports)
    return found


def engine_part(model: ModelSettings) -> dict[str, object]:
    """What an engine of this model reads."""
    part = model.model_dump(mode="json", exclude=set(NOT_READ_BY_ENGINES))
    return part | {"sleep_level": model.sleep_level}


def engine_deployments(model: ModelSettings) -> tuple[str, ...]:
    """The names of the deployments whose replicas are engines of this model."""
    apart = model.engine is not None and model.engine.disaggregation is not None
    return tuple(
        engine_deployment(model.id, prefix) for prefix in ((ENGINE, PREFILL) if apart else (ENGINE,))
    )


def _digest(*values: object) -> str:
    text = json.dumps([VERSION, *values], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
