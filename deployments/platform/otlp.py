"""The exporters that the standard ``OTEL_*`` variables name, and what is said when their endpoint is dead."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any
from urllib.parse import urlsplit

TRACES, METRICS = "traces", "metrics"

HTTP, GRPC = "http/protobuf", "grpc"
"""Values of ``OTEL_EXPORTER_OTLP_PROTOCOL``; the first is the default, as in the standard."""

OTLP_LOGGERS = (
    "opentelemetry.exporter.otlp.common.http",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.exporter.otlp.proto.http.metric_exporter",
    "opentelemetry.exporter.otlp.proto.grpc.exporter",
    "opentelemetry.sdk._shared_internal",
    "opentelemetry.sdk.metrics._internal.export",
)
"""The SDK's loggers of exports; each would log every failed one, some with a traceback."""

MOST_REASON = 200
"""Characters of the SDK's words."""

SHUT_DOWN_S = 3.0
"""What was measured last may take so long to be sent; a dead endpoint does not hold an end up."""

logger = logging.getLogger("ray.serve")


def exporter_names(environment: Mapping[str, str], signal: str) -> list[str]:
    """The names in ``OTEL_TRACES_EXPORTER`` or ``OTEL_METRICS_EXPORTER``: ``otlp`` where only an endpoint is
    named; none where nothing asks for an exporter."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    named = [each.strip() for each in environment.get(f"OTEL_{signal.upper()}_EXPORTER", "").split(",")]
    named = [each for each in named if each]
    if not named and _endpoint_variable(environment, signal) is not None:
        named = ["otlp"]
    return [each for each in dict.fromkeys(named) if each != "none"]


def protocol(environment: Mapping[str, str], signal: str) -> str:
    for variable in (f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if asked := environment.get(variable, "").strip():
            return asked
    return HTTP


def endpoint(environment: Mapping[str, str], signal: str) -> str:
    """Where OTLP of this signal goes, as a whole URL."""
    variable = _endpoint_variable(environment, signal)
    if protocol(environment, signal) == GRPC:
        return "http://localhost:4317" if variable is None else environment[variable]
    if variable is None:
        return f"http://localhost:4318/v1/{signal}"
    url = environment[variable]
    return url if signal.upper() in variable else f"{url.removesuffix('/')}/v1/{signal}"


def _endpoint_variable(environment: Mapping[str, str], signal: str) -> str | None:
    variables = (f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    return next((each for each in variables if environment.get(each)), None)


def exporters(environment: Mapping[str, str], signal: str, kind: type) -> list[Any]:
    """The named exporters; ``kind`` is the SDK's class of them.

    Raises:
        ValueError: one is not installed, or is no exporter; the message lists those that are.
    """
    return [_exporter(name, environment, signal, kind) for name in exporter_names(environment, signal)]


def _exporter(name: str, environment: Mapping[str, str], signal: str, kind: type) -> Any:
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    # Exporters register themselves under the SDK's own entry point groups.
    known = {point.name: point for point in entry_points(group=f"opentelemetry_{signal}_exporter")}
    wanted = name
    if name == "otlp":
        wanted = "otlp_proto_grpc" if protocol(environment, signal) == GRPC else "otlp_proto_http"
    # Prometheus registers a reader there, which starts a server of its own: Ray's page is that.
    usable = sorted(each for each in {*known, "otlp"} if each != "prometheus")
    made = known[wanted].load() if wanted in known else None
    if not (isinstance(made, type) and issubclass(made, kind)):
        raise ValueError(
            f"{variable} = {name!r}: expected one of {', '.join(usable)}, or several with commas"
        )
    return made()


class ExportWatch(logging.Handler):
    """Says in one line that an exporter's endpoint began to fail, and in one that it takes data again. The
    SDK's own lines about exports are held back while this is open.

    ``exporter`` is of the SDK; its ``export`` is replaced by one that looks at the result.
    """

    def __init__(self, signal: str, exporter: Any, to: str) -> None:
        super().__init__()
        self._signal = signal
        self._to = to
        self._exporter = exporter
        self._export: Callable[..., Any] = exporter.export
        self._said = threading.local()
        self._failing_since: float | None = None
        self._failed = 0
        self._ending = False
        exporter.export = self._watched
        for each in _loggers():
            each.addHandler(self)
            each.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the SDK's first words about the export that runs in this thread."""
        if getattr(self._said, "words", None) == "":
            self._said.words = _shown(record.getMessage())

    def close(self) -> None:
        for each in _loggers():
            each.removeHandler(self)
            each.propagate = not any(isinstance(other, ExportWatch) for other in each.handlers)
        super().close()

    def end(self) -> None:
        """The process ends: what does not reach its endpoint is given up."""
        self._ending = True
        if self._failing_since is not None:
            self._exporter.shutdown()  # wakes an export that waits for its next try

    def _watched(self, *args: Any, **options: Any) -> Any:
        self._said.words = ""
        result: Any = None
        try:
            result = self._export(*args, **options)
            return result
        except Exception as error:
            self._said.words = _shown(f"{type(error).__name__}: {error}")
            raise
        finally:
            reason, self._said.words = self._said.words, None
            self._note(is_sent=getattr(result, "name", None) == "SUCCESS", reason=reason)

    def _note(self, *, is_sent: bool, reason: str) -> None:
        if is_sent:
            if self._failing_since is not None:
                logger.warning(
                    "%s reach %s again; %d exports were lost in %.0f s",
                    *(self._signal, self._to, self._failed, time.monotonic() - self._failing_since),
                )
            self._failing_since, self._failed = None, 0
            return
        self._failed += 1
        if self._failing_since is None:
            self._failing_since = time.monotonic()
            if not self._ending:
                logger.warning(
                    "%s do not reach %s and are dropped until they do (said once): %s",
                    *(self._signal, self._to, reason or "no reason given"),
                )


def _loggers() -> list[logging.Logger]:
    return [logging.getLogger(name) for name in OTLP_LOGGERS]


def _shown(words: str) -> str:
    """An error's words without the path, which may hold a key."""
    return re.sub(r"url: \S+", "", " ".join(words.split()))[:MOST_REASON]


def _origin(url: str) -> str:
    """Scheme, host and port: the rest of a URL may hold a key."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def watched(signal: str, made: Sequence[Any], environment: Mapping[str, str]) -> list[ExportWatch]:
    to = _origin(endpoint(environment, signal))
    return [ExportWatch(signal, each, to) for each in made]


def ended(shut_down: Callable[[], object], watches: Sequence[ExportWatch]) -> None:
    """Send what is left, for at most ``SHUT_DOWN_S``. Never in the event loop."""
    for watch in watches:
        watch.end()
    # A daemon: an export that never returns does not keep the process.
    last = threading.Thread(target=shut_down, name="otlp-last-export", daemon=True)
    last.start()
    last.join(SHUT_DOWN_S)
    for watch in watches:
        watch.close()
