"""One guard each: asks it for its verdict."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import urlsplit

from deployments.wire.http1 import BrokenConnection, NoConnection, Origin, request_bytes
from deployments.wire.pool import ConnectionPool
from serve_app.errors import SettingsError
from serve_app.guardrails.contract import Check, Replace, Verdict
from serve_app.guardrails.mask import Masker
from serve_app.guardrails.verdicts import question_of, verdict_from_json, verdict_from_python
from serve_app.settings.guardrails import GuardrailSettings, HttpGuardSettings

READ_AHEAD = 1 << 16
IDLE_S = 10.0
"""How long a connection to a guard is kept."""

SLOW_CHARS = 16_384
"""More text than this is masked in a thread: it takes about 10 ms."""


class Failed(Exception):
    """A guard gave no verdict. The message says why, and has no text of a request or answer."""


class Judge(Protocol):
    async def judge(self, check: Check) -> Verdict:
        """Raises: Failed, BadVerdict."""
        ...

    def close(self) -> None: ...


class FunctionJudge:
    """A Python function. One that is not async runs in a thread of its own: a call that never returns holds
    that thread, which ends with the process, and one place of ``most`` calls."""

    def __init__(self, path: str, most: int) -> None:
        """Raises: SettingsError: there is no such function."""
        self._function = load_function(path)
        self._is_async = inspect.iscoroutinefunction(self._function)
        self._most = most
        self._running = 0

    async def judge(self, check: Check) -> Verdict:
        try:
            value = await (self._function(check) if self._is_async else self._in_thread(check))
        except Failed:
            raise
        except (Exception, SystemExit) as error:  # its message may quote the text
            raise Failed(f"it raised {type(error).__name__}") from None
        return verdict_from_python(value, check)

    def close(self) -> None:
        """Its threads end with the process."""

    async def _in_thread(self, check: Check) -> Any:
        if self._running >= self._most:
            raise Failed(f"{self._most} of its calls have not returned (guardrails.max_calls)")
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Any] = loop.create_future()
        self._running += 1

        def work() -> None:
            try:
                value, error = self._function(check), None
            except BaseException as raised:
                value, error = None, raised
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._returned, answered, value, error)

        threading.Thread(target=work, name="guardrail", daemon=True).start()
        return await answered

    def _returned(self, answered: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
        self._running -= 1
        if answered.done():
            return  # the caller no longer waits
        if error is None:
            answered.set_result(value)
        else:
            answered.set_exception(Failed(f"it raised {type(error).__name__}"))


class HttpJudge:
    """A server. Redirects are not followed; any status but 200 is a failure."""

    def __init__(self, settings: HttpGuardSettings, headers: Mapping[str, str], timeout_s: float) -> None:
        self._origin = Origin.of(settings.url)
        parts = urlsplit(settings.url)
        rest = (parts.path or "/").removeprefix(self._origin.path)
        self._target = rest + (f"?{parts.query}" if parts.query else "")
        self._headers = {**headers, "content-type": "application/json"}
        self._most_bytes = settings.max_answer_bytes
        self._pool = ConnectionPool(connect_timeout_s=timeout_s, idle_s=IDLE_S, read_ahead=READ_AHEAD)

    async def judge(self, check: Check) -> Verdict:
        request = request_bytes(self._origin, "POST", self._target, self._headers, question_of(check))
        try:
            status, body = await self._pool.ask(self._origin, request, self._most_bytes)
        except (NoConnection, BrokenConnection, OSError) as error:
            raise Failed(type(error).__name__) from None
        if status != 200:
            raise Failed(f"it answered {status}")
        return verdict_from_json(body, check)

    def close(self) -> None:
        self._pool.close()


class MaskJudge:
    """The built-in mask, for whole texts; a stream has :meth:`Masker.stream`."""

    def __init__(self, masker: Masker) -> None:
        self.masker = masker

    async def judge(self, check: Check) -> Verdict:
        if sum(len(each.text) for each in check.texts) > SLOW_CHARS:
            return await asyncio.to_thread(self._masked, check)
        return self._masked(check)

    def close(self) -> None:
        """It holds nothing."""

    def _masked(self, check: Check) -> Replace:
        masked = self.masker.masked
        return Replace(tuple(masked(each.text, in_json=each.kind == "arguments") for each in check.texts))


def judge_of(guard: GuardrailSettings, headers: Mapping[str, str]) -> Judge:
    """``headers`` of the requests to an HTTP guard. Raises: SettingsError: a function or a library is
    missing."""
    if guard.mask is not None:
        return MaskJudge(Masker(guard.mask.kinds, guard.mask.regions))
    if guard.http is not None:
        return HttpJudge(guard.http, headers, guard.timeout_s)
    assert guard.function is not None, "the settings ask for one of the three"
    return FunctionJudge(guard.function, guard.max_calls)


def guard_headers(
    guards: Sequence[GuardrailSettings], environment: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """The headers of each guard's requests, by its name, where the application is built: what would keep a
    gateway from starting is found here.

    Raises:
        SettingsError: a function, a variable or a library is missing.
    """
    for guard in guards:
        if guard.http is None:
            judge_of(guard, {})
    return {guard.name: _headers(guard, environment) for guard in guards}


def _headers(guard: GuardrailSettings, environment: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for header, variable in ({} if guard.http is None else guard.http.headers_env).items():
        value = environment.get(variable, "").strip()  # files end with a newline
        if not value:
            raise SettingsError(
                f"guardrails: {guard.name!r}: http.headers_env names {variable!r}, which is not set"
            )
        found[header.lower()] = value
    return found


def load_function(path: str) -> Callable[[Check], Any]:
    """Raises: SettingsError: it cannot be imported, or is no function."""
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise SettingsError(f"guardrails: function = {path!r}: {error}") from None
    if not callable(found):
        raise SettingsError(f"guardrails: function = {path!r} is no function")
    function: Callable[[Check], Any] = found
    return function
