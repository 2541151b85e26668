"""Every way a request can fail, with the one HTTP status of each.

    PromptlyError
    ├── BadRequest             400  a field of the request is wrong (``param`` names it)
    ├── EmbedderOnly           400  the model embeds texts and does nothing else
    ├── GuardRefused           400  a guardrail refuses the request, or the rest of its answer
    ├── Unauthorized           401  no key, or one that is not known
    ├── Forbidden              403  a known key that may not do this
    ├── UnknownHost            403  the `Host` is no name of ours (gateway.allowed_hosts)
    ├── OriginNotAllowed       403  a page of another origin, where no key is asked for
    ├── UnknownModel           404  no such model (the known ones are listed)
    ├── NotFound               404  no such path, entry, …
    ├── MethodNotAllowed       405
    ├── BodyTimeout            408  the client stopped in the middle of its body
    ├── HeaderTimeout          408  the client stopped in the middle of its headers (the proxy's answer)
    ├── SlowReader             408  the client does not read its stream
    ├── SessionTimeout         408  a WebSocket said nothing for too long, or lasted too long
    ├── Conflict               409  another change came first
    ├── BodyTooLarge           413
    ├── UnsupportedMediaType   415  the body's `Content-Type` is not one that the path takes
    ├── PackedBody             415  the body is compressed
    ├── UpgradeRequired        426  the path is a WebSocket, and the request was none
    ├── Quarantined            422  a request that broke several members a moment ago
    ├── OverCapacity           429  with ``Retry-After``
    ├── RateLimited            429  a limit of the sender or the model is reached
    ├── BudgetSpent            429  the tokens or the money of a day or month are used up
    ├── UpstreamRefused        4xx  the engine's own refusal, passed on with its status
    ├── UpstreamFailed         502  the engine broke
    ├── BudgetEnded            429  the same, while the answer was generated
    ├── EngineError            502  the engine's own error, passed on
    ├── NoReplica              503  no engine replica can take the request now
    ├── GuardUnavailable       503  a guardrail could not judge the request or its answer
    ├── CacheUnavailable       503  only /admin/cache: a request never fails for the cache
    ├── OwnerUnavailable       503  a part that alone owns a file does not answer; one of the next two
    ├── AccountsUnavailable    503  a key cannot be changed (or looked up after a start) now
    ├── FeedbackUnavailable    503  the owner of the feedback does not answer
    ├── SignInUnavailable      503  the sign-in provider's keys or answers are needed, and it gives none
    ├── LimitsUnavailable      503  a limit's owner is away, and what was granted is used up
    ├── ResponsesUnavailable   503  an earlier response is needed, and its store does not answer
    ├── UploadsUnavailable     503  there is no room for an uploaded file now
    ├── UpstreamTimeout        504  the engine did not begin in time
    └── DeadlineExceeded       504

``SettingsError`` and ``EngineStartError`` are raised at start-up, ``SuiteError`` by `promptly eval`,
``BackupError`` by `promptly backup` and `restore`: they never answer a request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec

PATIENCE_S = 60
"""A longer ``Retry-After`` is ignored by OpenAI's and Anthropic's clients, which then wait half a second."""


class SettingsError(ValueError):
    """A settings file cannot be used; the message names file, key, value and expectation."""


class EngineStartError(RuntimeError):
    """An engine cannot start; one line that names the model, the setting and a value that would work."""


class RefusedEngineStartError(EngineStartError):
    """An engine's settings are wrong: each further try would end the same."""


class BackupError(ValueError):
    """A backup cannot be made or restored; one line that says why. Nothing was changed."""


class SuiteError(ValueError):
    """A suite of cases cannot be used; each line of the message names file, line, key and expectation."""


class ErrorDetails(msgspec.Struct, frozen=True):
    """The body of an error response. ``code`` is a name or ``None``, never a number."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def on_one_line(text: str) -> str:
    """What clients sent (a name, a value) may stand in it: control characters are written as escapes."""
    return text if text.isprintable() else CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


class PromptlyError(Exception):
    """A request that ends with an error, written in the format of the client's API (``serve_app.dialects``).

    ``param`` names the field, header or setting that was wrong; ``code`` is the machine-readable reason.
    ``should_retry`` is sent to clients as ``x-should-retry``; ``None`` leaves it to them, and they retry 408,
    409, 429 and every 5xx.
    """

    status: int = 500
    type: ClassVar[str] = "internal_error"
    should_retry: bool | None = None

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = on_one_line(message)
        self.param = param
        self.code = code

    @property
    def headers(self) -> dict[str, str]:
        """Response headers of this error."""
        return {}

    @property
    def details(self) -> ErrorDetails:
        return ErrorDetails(self.message, self.type, self.param, self.code)

    def body(self) -> bytes:
        """``{"error": {message, type, param, code}}`` as JSON."""
        return msgspec.json.encode({"error": self.details})


class BadRequest(PromptlyError):
    status = 400
    type = "invalid_request_error"


class EmbedderOnly(BadRequest):
    def __init__(self, model: str) -> None:
        super().__init__(
            f"The model {model!r} embeds texts: it answers POST /v1/embeddings only.",
            param="model",
            code="model_not_supported",
        )


class GuardRefused(BadRequest):
    """``message`` names the guardrail."""

    should_retry = False


class Unauthorized(PromptlyError):
    status = 401
    type = "authentication_error"

    @property
    def headers(self) -> dict[str, str]:
        return {"www-authenticate": "Bearer"}


class Forbidden(PromptlyError):
    status = 403
    type = "permission_error"


class UnknownHost(Forbidden):
    def __init__(self, host: str) -> None:
        super().__init__(
            f"Host {host[:100]!r} is no name of this endpoint (gateway.allowed_hosts).",
            param="host",
            code="host_not_allowed",
        )


class OriginNotAllowed(Forbidden):
    """``origin`` is the page's origin, or the value of `Sec-Fetch-Site`."""

    def __init__(self, origin: str) -> None:
        super().__init__(
            f"Pages of {origin[:100]!r} may not use this endpoint (gateway.cors_origins).",
            param="origin",
            code="origin_not_allowed",
        )


class NotFound(PromptlyError):
    status = 404
    type = "not_found_error"


class UnknownModel(NotFound):
    def __init__(self, model: str, known: Sequence[str]) -> None:
        listed = ", ".join(known) or "none"
        super().__init__(
            f"The model {model!r} does not exist. Known models: {listed}.",
            param="model",
            code="model_not_found",
        )


class MethodNotAllowed(PromptlyError):
    status = 405
    type = "invalid_request_error"

    def __init__(self, method: str, path: str, allowed: str) -> None:
        message = f"{method} is not allowed for {path}; allowed: {allowed}."
        super().__init__(message, code="method_not_allowed")
        self.allowed = allowed

    @property
    def headers(self) -> dict[str, str]:
        return {"allow": self.allowed}


class BodyTimeout(PromptlyError):
    status = 408
    type = "timeout_error"

    def __init__(self, waited_s: float, received_bytes: int) -> None:
        super().__init__(
            f"The request body is too slow: {received_bytes} bytes in {waited_s:.1f} s "
            "(limits.body_timeout_s, limits.min_body_bytes_per_s).",
            code="body_timeout",
        )


class HeaderTimeout(PromptlyError):
    status = 408
    type = "timeout_error"

    def __init__(self, timeout_s: float) -> None:
        message = f"The headers did not arrive within {timeout_s:g} s (proxy.header_timeout_s)."
        super().__init__(message, code="header_timeout")


class Conflict(PromptlyError):
    """Not retried: the client must look at what is there now."""

    status = 409
    type = "invalid_request_error"
    should_retry = False


class BodyTooLarge(PromptlyError):
    status = 413
    type = "invalid_request_error"

    def __init__(self, limit_bytes: int, setting: str = "max_body_bytes") -> None:
        super().__init__(
            f"The request body is larger than {limit_bytes} bytes (limits.{setting}).",
            code="body_too_large",
        )


class UnsupportedMediaType(PromptlyError):
    status = 415
    type = "invalid_request_error"

    def __init__(self, given: str | None, accepted: Sequence[str]) -> None:
        was = "is missing" if given is None else f"is {given[:100]!r}"
        upload = " Uploads are not relayed." if given is not None and given.startswith("multipart/") else ""
        super().__init__(
            f"`Content-Type` {was}; expected {' or '.join(accepted)}.{upload}",
            param="content-type",
            code="unsupported_media_type",
        )


class PackedBody(PromptlyError):
    """Nothing is unpacked here: a few bytes may become very many."""

    status = 415
    type = "invalid_request_error"

    def __init__(self, encoding: str) -> None:
        super().__init__(
            f"`Content-Encoding` is {encoding[:100]!r}: send the body as it is, without compression.",
            param="content-encoding",
            code="unsupported_content_encoding",
        )


class OverCapacity(PromptlyError):
    """Clients wait for ``retry_after_s``, but only up to ``PATIENCE_S``: with a longer one they would retry
    at once."""

    status = 429
    type = "rate_limit_error"

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message, code="over_capacity")
        self.retry_after_s = retry_after_s
        self.should_retry = retry_after_s <= PATIENCE_S

    @property
    def headers(self) -> dict[str, str]:
        return {"retry-after": str(self.retry_after_s)}


class RateLimited(PromptlyError):
    """``retry_after_s`` ``None``: it asks for more than ever fits, so waiting does not help. ``limit``: which
    limit it is, as a sentence; default: the message."""

    status = 429
    type = "rate_limit_error"

    def __init__(self, message: str, retry_after_s: int | None, *, limit: str = "") -> None:
        super().__init__(message, code="rate_limit_exceeded")
        self.limit = limit or message
        self.retry_after_s = retry_after_s
        self.should_retry = retry_after_s is not None and retry_after_s <= PATIENCE_S

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.retry_after_s is None else {"retry-after": str(self.retry_after_s)}


class BudgetSpent(RateLimited):
    """Its code is OpenAI's, by which clients tell it from a rate. ``retry_after_s`` ends with the day or
    month."""

    def __init__(self, message: str, retry_after_s: int | None, *, limit: str = "") -> None:
        super().__init__(message, retry_after_s, limit=limit)
        self.code = "insufficient_quota"


class Quarantined(PromptlyError):
    """Not a 5xx, because clients retry those, and this request would break the next member."""

    status = 422
    type = "invalid_request_error"
    should_retry = False

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(
            "This very request broke several engines a moment ago; it is refused for "
            f"{retry_after_s} s (limits.quarantine_s).",
            code="request_quarantined",
        )
        self.retry_after_s = retry_after_s

    @property
    def headers(self) -> dict[str, str]:
        return {"retry-after": str(self.retry_after_s)}


class SlowReader(PromptlyError):
    status = 408
    type = "timeout_error"

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(
            f"The stream is {limit_bytes} bytes ahead of its reader (limits.max_stream_buffer_bytes).",
            code="slow_reader",
        )


class SessionTimeout(PromptlyError):
    """Told to a WebSocket's client before it is closed."""

    status = 408
    type = "timeout_error"


class UpgradeRequired(PromptlyError):
    status = 426
    type = "invalid_request_error"

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is a WebSocket: connect with an upgrade.", code="upgrade_required")

    @property
    def headers(self) -> dict[str, str]:
        return {"upgrade": "websocket"}


class UpstreamRefused(PromptlyError):
    """An engine's own 4xx. The client gets ``said``, the engine's message; ``str()``, for logs, leaves it
    out."""

    type = "invalid_request_error"

    def __init__(self, status: int, said: ErrorDetails, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(f"The engine answered {status}.", code="upstream_refused")
        self.status = status
        self._said = said
        self._headers = dict(headers or {})

    @property
    def headers(self) -> dict[str, str]:
        return self._headers

    @property
    def details(self) -> ErrorDetails:
        return self._said


class UpstreamFailed(PromptlyError):
    status = 502
    type = "upstream_error"


class BudgetEnded(UpstreamFailed):
    """Ends an answer. A client must not take what it has of a stream for a whole answer, as with a
    `finish_reason` it would; ``is_lost``: it has nothing; ``is_held``: requests that run have reserved the
    rest, and may leave some."""

    status = 429
    type = "rate_limit_error"
    should_retry = False

    def __init__(self, message: str, *, is_lost: bool = False, is_held: bool = False) -> None:
        why = " Requests that run have reserved the rest." if is_held else ""
        end = "The answer is lost, and counts." if is_lost else "The answer ends here."
        code = "rate_limit_exceeded" if is_held else "insufficient_quota"
        super().__init__(f"{message}{why} {end}", code=code)


class EngineError(UpstreamFailed):
    """An engine's own 5xx, ``engine_status``. The client gets ``said``, the engine's message; ``str()``, for
    logs, leaves it out."""

    def __init__(self, said: ErrorDetails, engine_status: int = 500) -> None:
        super().__init__("The engine failed.", code="upstream_failed")
        self.engine_status = engine_status
        self._said = said

    @property
    def details(self) -> ErrorDetails:
        return self._said


class NoReplica(PromptlyError):
    status = 503
    type = "unavailable_error"

    @property
    def headers(self) -> dict[str, str]:
        return {"retry-after": "1"}


class GuardUnavailable(PromptlyError):
    """``message`` names the guardrail."""

    status = 503
    type = "unavailable_error"

    def __init__(self, message: str) -> None:
        super().__init__(message, code="guardrail_failed")


class CacheUnavailable(PromptlyError):
    status = 503
    type = "unavailable_error"


class OwnerUnavailable(PromptlyError):
    """A part that alone owns a file. Worth another try. ``reason`` names no path, no key and no text.
    ``is_final``: the owner itself said no, so asking it again at once is of no use."""

    status = 503
    type = "unavailable_error"
    should_retry = True

    def __init__(self, message: str, code: str, reason: str, *, is_final: bool) -> None:
        super().__init__(message, code=code)
        self.reason = reason
        self.is_final = is_final

    @property
    def headers(self) -> dict[str, str]:
        return {"retry-after": "1"}


class AccountsUnavailable(OwnerUnavailable):
    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        message = f"Keys cannot be looked up or changed now: {reason}. Known keys go on working."
        super().__init__(message, "accounts_unavailable", reason, is_final=is_final)


class FeedbackUnavailable(OwnerUnavailable):
    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        message = f"Feedback cannot be kept or read now: {reason}."
        super().__init__(message, "feedback_unavailable", reason, is_final=is_final)


class SignInUnavailable(PromptlyError):
    """Worth another try: providers come back."""

    status = 503
    type = "unavailable_error"
    should_retry = True

    def __init__(self, why: str) -> None:
        message = f"The sign-in provider (auth.oidc.issuer) cannot be used: {why}."
        super().__init__(message, code="sign_in_unavailable")

    @property
    def headers(self) -> dict[str, str]:
        return {"retry-after": "10"}


class LimitsUnavailable(PromptlyError):
    """Only where there is a limit: what has none goes on."""

    status = 503
    type = "unavailable_error"
    should_retry = True

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"What the limits still allow cannot be looked up now: {reason}.", code="limits_unavailable"
        )

    @property
    def headers(self) -> dict[str, str]:
        return {"retry-after": "1"}


class ResponsesUnavailable(PromptlyError):
    """Worth another try: the store comes back within seconds."""

    status = 503
    type = "unavailable_error"
    should_retry = True

    def __init__(self, why: str) -> None:
        super().__init__(f"The store of responses does not answer: {why}.", code="responses_unavailable")

    @property
    def headers(self) -> dict[str, str]:
        return {"retry-after": "1"}


class UploadsUnavailable(PromptlyError):
    """``reason`` names no path."""

    status = 503
    type = "unavailable_error"
    should_retry = True

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The uploaded file cannot be kept while it is answered (media.upload_folder): {reason}.",
            code="uploads_unavailable",
        )

    @property
    def headers(self) -> dict[str, str]:
        return {"retry-after": "1"}


class UpstreamTimeout(PromptlyError):
    """Not retried: another attempt would cost an engine that is already too slow as much time again."""

    status = 504
    type = "timeout_error"
    should_retry = False

    def __init__(self, timeout_s: float) -> None:
        message = f"The engine did not begin to answer within {timeout_s:g} s (limits.first_token_timeout_s)."
        super().__init__(message, code="first_token_timeout")


class DeadlineExceeded(PromptlyError):
    """Not retried: the client's own limit has passed, and each attempt would take that long again."""

    status = 504
    type = "timeout_error"
    should_retry = False

    def __init__(self, timeout_s: float) -> None:
        message = f"No complete answer within {timeout_s:g} s (x-request-timeout-ms)."
        super().__init__(message, param="x-request-timeout-ms", code="deadline_exceeded")
