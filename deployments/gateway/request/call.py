"""What is asked of a member, whichever one answers: room for it, and the HTTP request that it is sent."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Self
from urllib.parse import quote

import msgspec

from deployments.gateway.request.account import Account
from deployments.gateway.request.exchange import JSON, Exchange
from deployments.gateway.request.uploads import UploadedForm
from deployments.platform.telemetry import RequestTracer
from deployments.wire.http1 import LongBody
from serve_app.admission import FIRST_PRIORITY, PRIORITY_FIELD, body_priority
from serve_app.dialects.remedies import rewritten, without_limit
from serve_app.errors import ErrorDetails
from serve_app.fleet import EngineReport
from serve_app.openai.continuation import RESUME_PATH, TOLD_FIELD, Resumable
from serve_app.openai.overflow import ANSWER_LIMITS
from serve_app.openai.requests import CACHE_SALT
from serve_app.openai.vendor import vendor_fields
from serve_app.quarantine import body_key
from serve_app.request.timing import Timeline
from serve_app.routing import RoutingRequest

ENGINE_PRIORITY_HEADER = "x-vllm-priority"
"""vLLM takes a request's priority (a lower number goes first) in a header too, which overrides the body's."""


SALTED = ("/v1/", "/classify", "/pooling")
"""The beginnings of the paths whose requests have a `cache_salt` in vLLM."""

EACH_CHUNK = "continuous_usage_stats"
"""vLLM's option: usage with every chunk."""

PLAIN_PATH = re.compile(r"[A-Za-z0-9_.~/-]*")
"""Nothing in it needs quoting."""


class SlotRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What placement needs to know: how much room a request takes, for whom, and how long it may wait.

    ``path`` is the member's, without the query. ``deadline`` is in monotonic seconds. ``weight`` is the
    number of sequences to generate, ``weight_field`` the body's field that asks for them; ``in_parts``: an
    engine without room for all of them may run them one after the other. ``needs_token_ids``: only members
    that give token ids can serve it; ``needs_resuming``: only those that resume chats. ``account``: of who
    asks; ``None`` where nothing is limited.
    """

    account: Account | None
    tenant: str = ""
    path: str
    priority: int
    deadline: float
    timeline: Timeline
    routing: RoutingRequest
    weight: int = 1
    weight_field: str = "n"
    in_parts: bool = False
    needs_token_ids: bool = False
    needs_resuming: bool = False


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """The HTTP request, as far as it is the same for every member.

    ``target`` is path and query, encoded. ``streams``: it asks for a stream. ``include_usage``: the stream
    must end with usage, whether the client asked for it or not; ``measures``: it should, where the member is
    known to write it. ``salt`` separates tenants in the prefix
    caches of engines; ``None`` where they share. ``best_priority`` bounds the priority in the body.
    ``translated``: the client did not write the body itself; it must suit every member. ``form``: the body is
    this form, and no JSON. ``as_read``: by its fields a key's rights and limits were decided, so servers
    elsewhere get these and no others: of two fields of one name they may take the first, where the gateway
    and every engine take the last. ``answer_limit``: a field and its value, the tokens that each answer may
    have, where the request names none. It is one class because what a member is sent depends on all of it.
    """

    method: str
    target: str
    body: bytes
    fields: Mapping[str, object]
    headers: Mapping[str, str]
    streams: bool = False
    include_usage: bool = False
    measures: bool = False
    salt: str | None = None
    best_priority: int = FIRST_PRIORITY
    translated: bool = False
    form: UploadedForm | None = None
    as_read: bool = False
    answer_limit: Mapping[str, int] | None = None

    def to(self, target: str, fields: Mapping[str, object], body: bytes, *, streams: bool) -> Self:
        """Another request with the same headers and rights."""
        return msgspec.structs.replace(
            self,
            target=target,
            fields=fields,
            body=body,
            streams=streams,
            include_usage=False,
            measures=False,
            answer_limit=None,
        )

    def unbounded(self) -> Self | None:
        """The same without a limit for the answer, which then gets what the prompt leaves of the context.
        ``None``: it has no limit, or a chat client set it, and is told that it is too large."""
        return self._with(without_limit(self.fields) if self.translated else None)

    def otherwise(self, refused: ErrorDetails) -> Self | None:
        """The same in a form that a member may take which refused this one. ``None``: none is known, or the
        client wrote it itself."""
        return self._with(rewritten(self.fields, refused) if self.translated else None)

    def _with(self, fields: Mapping[str, object] | None) -> Self | None:
        if fields is None:
            return None
        return msgspec.structs.replace(self, fields=fields, body=msgspec.json.encode(fields))

    def exceeds(self, context: int | None) -> bool:
        """The answer alone may be as long as all of the context: vLLM refuses that, whatever the prompt."""
        if context is None:
            return False
        asked = (self.fields.get(name) for name in ANSWER_LIMITS)
        return any(isinstance(limit, int) and limit >= context for limit in asked)

    def headers_for(self, *, priority: int | None) -> dict[str, str]:
        """The headers for one member. vLLM names its own request after ``x-request-id``, so each attempt has
        an id of its own. ``priority`` is the gateway's, for an engine that schedules by priority: there the
        body's goes first. Other servers get ``None``."""
        headers = {**self.headers, "x-request-id": f"{self.headers['x-request-id']}-{os.urandom(4).hex()}"}
        if priority is not None:
            from_body = self._body_priority()
            headers[ENGINE_PRIORITY_HEADER] = str(priority if from_body is None else from_body)
        return headers

    def _body_priority(self) -> int | None:
        """The body's priority, as far as the client's key allows it."""
        asked = body_priority(self.fields)
        return None if asked is None else max(asked, self.best_priority)

    def asks_usage(self, report: EngineReport) -> bool:
        """The member is asked for usage, whatever the client asked for."""
        is_vllm = not report.is_static or report.gives_token_ids
        return self.include_usage or (self.measures and is_vllm)

    def target_for(self, report: EngineReport) -> str:
        """The target under the member's own prefix instead of ``/v1``."""
        if report.api_prefix != "/v1" and self.target.startswith("/v1/"):
            return report.api_prefix + self.target.removeprefix("/v1")
        return self.target

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return len(self.body) if self.form is None else self.form.size

    def body_for(
        self, report: EngineReport, model: str, *, by_priority: bool, token_ids: bool
    ) -> bytes | LongBody:
        """The client's own bytes, unless fields are added, the member has another name for the model, or it
        must get the fields ``as_read``. ``model`` is the model's own name; ``by_priority``: the member
        schedules by priority; ``token_ids``: it is asked for the tokens of its answer."""
        if self.form is not None:
            return self.form.sent({"model": report.served_as or model})
        changed: dict[str, object] = {**(self.answer_limit or {})}
        if self.salt is not None and report.takes_cache_salt and self.target.startswith(SALTED):
            changed[CACHE_SALT] = self.salt
        if token_ids:
            changed["return_token_ids"] = True
        # An external vLLM may schedule by priority, too. Other servers do not know the field, or give it
        # the opposite meaning.
        if PRIORITY_FIELD in self.fields and (by_priority or (report.is_static and report.gives_token_ids)):
            asked = self._body_priority()
            if asked is not None and asked != self.fields[PRIORITY_FIELD]:
                changed[PRIORITY_FIELD] = asked
        served_as = report.served_as or model
        if served_as != self.fields.get("model"):
            changed["model"] = served_as
        if self.asks_usage(report):
            options = self.fields.get("stream_options")
            known = options if isinstance(options, dict) else {}
            if not known.get("include_usage"):
                # What only the gateway asks for comes once, at the end.
                once = {name: value for name, value in known.items() if name != EACH_CHUNK}
                changed["stream_options"] = {**once, "include_usage": True}
        if self.translated and not report.gives_token_ids:
            return msgspec.json.encode({**vendor_fields(self.fields, served_as), **changed})
        if self.as_read and report.is_static:
            return msgspec.json.encode({**self.fields, **changed})
        if not changed:
            return self.body
        if changed.keys().isdisjoint(self.fields):
            # Fields are added behind the client's own, whose bytes stay as they came.
            return self.body.rstrip()[:-1] + b"," + msgspec.json.encode(changed)[1:]
        return msgspec.json.encode({**self.fields, **changed})


class Purpose(Enum):
    """What an answer is for."""

    ANSWER = auto()
    """A generated answer. It is complete, or it is an error; latency and length are measured."""

    HELP = auto()
    """A question of the gateway's own on the way to an answer. Nothing is measured."""

    RELAY = auto()
    """Any other request: the response is passed on, whatever it is."""


class Resumption(Enum):
    """How another member goes on with a broken stream."""

    TEXT = auto()
    """It is asked for a text completion of all tokens so far."""

    CHAT = auto()
    """It is asked for the same chat, and gets the tokens so far."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A request on its way to a member. It outlives its client where other clients have joined.

    ``model`` is any name of a model, an adapter or an alias. ``failover``: another member may be asked, so it
    may be sent more than once. ``resumes``: the request, if its stream may be continued at another member:
    then members are asked for token ids. ``body`` is what quarantine knows the request by: the client's own
    body, whatever is asked on its behalf; of a form a digest.
    """

    model: str
    purpose: Purpose
    slot: SlotRequest
    message: Message
    body: bytes
    failover: bool = False
    resumes: Resumable | None = None

    @property
    def body_key(self) -> bytes:
        return body_key(self.slot.tenant, self.slot.path, self.body)

    def resumption(self, report: EngineReport) -> Resumption | None:
        """How the stream of a member with this report could be continued; ``None``: it could not."""
        if self.resumes is None:
            return None
        if self.resumes.as_text and report.gives_token_ids:
            return Resumption.TEXT
        return Resumption.CHAT if self.resumes.as_chat and report.resumes_chats else None

    def going_on(self, told: Sequence[Sequence[int]]) -> Call:
        """The client's own chat, for a member that is also told the answer's tokens so far; without any it
        begins again."""
        message = self.message
        if told:
            fields = {**message.fields, TOLD_FIELD: told}
            body = msgspec.json.encode(fields)
            message = msgspec.structs.replace(message, target=RESUME_PATH, fields=fields, body=body)
        slot = msgspec.structs.replace(self.slot, needs_resuming=True)
        return msgspec.structs.replace(self, slot=slot, message=message)

    @property
    def may_hedge(self) -> bool:
        """Only streams are hedged: the first byte of any other answer shows how long that answer is."""
        return self.message.streams and self.failover and self.purpose is Purpose.ANSWER


def forwarded_headers(exchange: Exchange, tracer: RequestTracer | None) -> dict[str, str]:
    """The headers that engines get; never keys."""
    headers = {
        "content-type": exchange.headers.get("content-type", JSON),
        "x-request-id": exchange.request_id,
    }
    if tracer is not None and exchange.span is not None:
        tracer.inject(exchange.span, headers)
    elif "traceparent" in exchange.headers:
        headers["traceparent"] = exchange.headers["traceparent"]
    return headers


def target_of(exchange: Exchange, path: str | None = None) -> str:
    """``path``: what members call the exchange's path, if they have another name for it."""
    query = f"?{exchange.query.decode('latin-1')}" if exchange.query else ""
    path = exchange.path if path is None else path
    return (path if PLAIN_PATH.fullmatch(path) else quote(path)) + query


def deadline_of(exchange: Exchange, timeout_s: float) -> float:
    """Monotonic seconds; the time-out counts from the request's start."""
    return time.monotonic() + timeout_s - exchange.timeline.elapsed_ms() / 1000
