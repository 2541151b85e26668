"""An engine whose constructor fails as the real one's does."""

from __future__ import annotations

from serve_app.errors import EngineStartError
from serve_app.settings import ModelSettings

REASON = "engine.max_model_len = 4096: more than the model has; use at most 2048"


class FailingEngine:
    """Never starts."""

    def __init__(self, model: ModelSettings) -> None:
        raise EngineStartError(f"model {model.id!r}: {REASON}")

    async def describe(self) -> None:
        """Never called."""
