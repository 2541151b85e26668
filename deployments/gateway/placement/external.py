"""External upstreams as members of the fleet: their first report, from the settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from serve_app.errors import SettingsError
from serve_app.fleet import EngineReport, EngineState
from serve_app.settings import ModelSettings, Settings, UpstreamSettings


@dataclass(frozen=True, slots=True)
class ExternalUpstream:
    """``report`` holds the key (not in ``repr``); ``health_target`` is a path on its origin."""

    report: EngineReport = field(repr=False)
    health_target: str
    health_period_s: float
    health_timeout_s: float


def external_upstreams(settings: Settings, environment: Mapping[str, str]) -> tuple[ExternalUpstream, ...]:
    """Every external upstream of every model. Raises: SettingsError: a key's variable is not set."""
    return tuple(
        _external(model, upstream, environment) for model in settings.models for upstream in model.upstreams
    )


def _external(
    model: ModelSettings, upstream: UpstreamSettings, environment: Mapping[str, str]
) -> ExternalUpstream:
    report = EngineReport(
        replica_id=upstream.name,
        model=model.id,
        url=upstream.origin,
        headers=_headers(model, upstream, environment),
        state=EngineState.WARMING,
        capacity=upstream.max_requests,
        served_as=upstream.model,
        api_prefix=upstream.api_prefix,
        gives_token_ids=upstream.kind == "vllm",
        takes_cache_salt=upstream.sends_cache_salt,
        shows_prefixes=upstream.sends_cache_salt and upstream.paths is None,
        priority=upstream.priority,
        weight=upstream.weight,
        is_static=True,
        paths=upstream.offered_paths,
        idle_connection_s=upstream.idle_connection_s,
    )
    return ExternalUpstream(
        report, upstream.health_target, upstream.health_period_s, upstream.health_timeout_s
    )


def _headers(
    model: ModelSettings, upstream: UpstreamSettings, environment: Mapping[str, str]
) -> dict[str, str]:
    if upstream.key_env is None:
        return {}
    key = environment.get(upstream.key_env, "").strip()  # files end with a newline
    if not key:
        raise SettingsError(
            f"model {model.id!r}: upstream {upstream.name!r}: the variable {upstream.key_env} "
            "(`key_env`) is not set where the application is built"
        )
    return {"authorization": f"Bearer {key}"}
