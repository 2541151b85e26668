"""One start of an engine: the duration of its phases, and the reason if it failed."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping
from typing import NoReturn

import psutil

from deployments.engine.start.log import EngineLog, points_elsewhere
from deployments.engine.start.record import reason_of
from deployments.engine.start.warm_up import WarmUpError
from serve_app.engines.start import start_phases
from serve_app.engines.start_failure import explained
from serve_app.errors import EngineStartError, RefusedEngineStartError, SettingsError
from serve_app.settings import ModelSettings

WARM_UP = "warm-up: "
"""The prefix of the phases that are warm-up requests, before the kind of request."""

SILENT = "vLLM's processes ended without an error message; the replica's own log may have one"

logger = logging.getLogger("ray.serve")


class EngineStart:
    """Create it first in an engine's constructor, and ``close`` it when no more vLLM processes will start."""

    def __init__(self, model: ModelSettings) -> None:
        self._model = model
        self._process_at = psutil.Process().create_time()
        self._constructor_at = time.time()
        self._engine_at = self._constructor_at
        self._log = EngineLog()

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """The context in which the engine is loaded.

        Raises:
            EngineStartError: loading failed; one line that names the setting that can help, instead of vLLM's
                long trace.
            RefusedEngineStartError: the settings are wrong; the same.
        """
        try:
            with self._log.recording():
                yield
        except SettingsError as error:  # the message already names model and setting
            self._fail("; ".join(str(error).splitlines()), RefusedEngineStartError)
        except Exception as error:
            self._fail(f"model {self._model.id!r}: {self._reason(error)}")
        self._engine_at = time.time()

    @contextlib.contextmanager
    def warming(self) -> Iterator[None]:
        """The context in which the engine is warmed up. Raises: EngineStartError."""
        try:
            yield
        except WarmUpError as error:
            cause = self._log.failure() if points_elsewhere(str(error)) else None
            self._fail(f"model {self._model.id!r}: {error}" + (f" ({cause})" if cause else ""))

    def phases(self, warmed: Mapping[str, float]) -> dict[str, float]:
        """The seconds of each phase; also logged. Gateways export them: a gauge that is set once is gone a
        minute later.
        ``warmed``: seconds of each kind of warm-up request."""
        phases = start_phases(
            process=self._process_at,
            constructor=self._constructor_at,
            engine=self._engine_at,
            marks=self._log.marks(),
        )
        phases |= {f"{WARM_UP}{kind}": seconds for kind, seconds in warmed.items()}
        total = time.time() - self._process_at
        shown = ", ".join(f"{phase} {seconds:.1f}" for phase, seconds in phases.items())
        logger.info("engine %s ready after %.1f s: %s", self._model.id, total, shown)
        return phases

    def close(self) -> None:
        self._log.close()

    def _reason(self, error: Exception) -> str:
        reason = reason_of(error)
        if not points_elsewhere(reason):
            return explained(reason, self._model)
        # If the other process logged nothing, it was killed or it logs elsewhere.
        known = explained(self._log.failure() or reason, self._model)
        return SILENT if points_elsewhere(known) else known

    def _fail(self, message: str, kind: type[EngineStartError] = EngineStartError) -> NoReturn:
        self._log.close()
        logger.error("engine did not start: %s", message)
        raise kind(message) from None
