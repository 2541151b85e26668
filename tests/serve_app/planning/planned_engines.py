"""Settings for plans in tests."""

from __future__ import annotations

from typing import Any

from serve_app.planning import EngineRequest, engine_request
from serve_app.settings import ModelSettings


def model(engine: dict[str, Any] | None = None, **more: Any) -> ModelSettings:
    """A model with managed replicas."""
    return ModelSettings.model_validate({"id": "m", "source": "owner/m", "engine": engine or {}} | more)


def request(**engine: Any) -> EngineRequest:
    """What an engine with these settings asks for."""
    return engine_request(model(engine))
