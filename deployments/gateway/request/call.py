"""What is asked of an engine, whichever one answers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from secrets import token_hex
from urllib.parse import quote

import msgspec

from deployments.gateway.request.exchange import JSON, Exchange
from deployments.platform.telemetry import RequestTracer
from serve_app.admission import FIRST_PRIORITY, PRIORITY_FIELD, body_priority
from serve_app.fleet import EngineReport
from serve_app.openai.requests import CACHE_SALT, ParsedRequest
from serve_app.quarantine import body_key
from serve_app.request.timing import Timeline
from serve_app.routing import RoutingRequest

ENGINE_PRIORITY_HEADER = "x-vllm-priority"
"""vLLM takes a request's priority (a lower number goes first) in a header too, which overrides the body's."""


DETOKENIZE = "/detokenize"
"""What a continuation asks an engine for on the way: it generates nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request on its way to an engine. It outlives its client where others have joined.

    ``model`` is any name of a model, an adapter or an alias. ``path`` is the one that the client asked for,
    ``target`` path and query, encoded, of what a member is asked for.
    ``request`` is given for generating requests, which may be sent again; anything else is sent at most once.
    ``failover``: another member may take over. ``tracks_tokens``: a member that can is asked for token ids;
    ``continues``: the rest of an answer, for such members only. ``deadline`` is in monotonic seconds.
    ``salt`` keeps tenants apart in the prefix caches of engines; ``None`` where they are meant to share.
    ``tenant`` is who asks, ``weight`` the places that it takes: one for each sequence. ``in_parts``: an
    engine that cannot run them all at once takes them one after the other.
    ``best_priority`` bounds what the body says of ``priority``; ``priority`` is within it.
    """

    model: str
    method: str
    path: str
    target: str
    body: bytes
    fields: Mapping[str, object]
    headers: Mapping[str, str]
    routing: RoutingRequest
    priority: int
    deadline: float
    timeline: Timeline
    request: ParsedRequest | None = None
    failover: bool = True
    include_usage: bool = False
    tracks_tokens: bool = False
    continues: bool = False
    salt: str | None = None
    best_priority: int = FIRST_PRIORITY
    tenant: str = ""
    weight: int = 1
    in_parts: bool = False

    @property
    def body_key(self) -> bytes:
        """Names the client's own request, whatever is asked of members on its behalf."""
        return body_key(self.tenant, self.path, self.body if self.request is None else self.request.body)

    @property
    def is_errand(self) -> bool:
        """Asked on the way to an answer: how long it takes says nothing of first tokens."""
        return self.request is not None and self.target == DETOKENIZE

    def headers_for_engine(self, *, by_priority: bool = False) -> dict[str, str]:
        """vLLM names its own request after ``x-request-id``; two requests with one id must not meet there.
        ``by_priority``: the engine schedules by priority; it is told the body's, else the line's."""
        headers = {**self.headers, "x-request-id": f"{self.headers['x-request-id']}-{token_hex(4)}"}
        if by_priority:
            said = self._body_priority()
            headers[ENGINE_PRIORITY_HEADER] = str(self.priority if said is None else said)
        return headers

    def _body_priority(self) -> int | None:
        """What the body asks for, as far as the client's key lets it."""
        asked = body_priority(self.fields)
        return None if asked is None else max(asked, self.best_priority)

    def target_for(self, report: EngineReport) -> str:
        """Paths under ``/v1`` lie under the member's own prefix."""
        if report.api_prefix != "/v1" and self.target.startswith("/v1/"):
            return report.api_prefix + self.target.removeprefix("/v1")
        return self.target

    def body_for(self, report: EngineReport, name: str, *, by_priority: bool = False) -> bytes:
        """The very bytes that the client sent, unless the gateway wants more or the member has another name
        for the model. ``name`` is the model's own; ``by_priority`` as for the headers."""
        changed: dict[str, object] = {}
        if self.salt is not None and report.takes_cache_salt and self.target.startswith("/v1/"):
            changed[CACHE_SALT] = self.salt
        if self.tracks_tokens and report.gives_token_ids:
            changed["return_token_ids"] = True
        # A vLLM that is not ours may schedule by priority, too. Others know no such field, or mean the
        # opposite by it.
        if by_priority or (report.is_static and report.gives_token_ids):
            said = self._body_priority()
            if said is not None and said != self.fields[PRIORITY_FIELD]:
                changed[PRIORITY_FIELD] = said
        served_as = report.served_as or name
        if served_as != self.fields.get("model"):
            changed["model"] = served_as
        if self.include_usage:
            options = self.fields.get("stream_options")
            known = options if isinstance(options, dict) else {}
            changed["stream_options"] = {**known, "include_usage": True}
        if changed.keys().isdisjoint(self.fields):
            return _with_fields(self.body, changed)
        return msgspec.json.encode({**self.fields, **changed})


def _with_fields(body: bytes, added: Mapping[str, object]) -> bytes:
    """A JSON object that has some fields, with others behind them: the bytes that are there stay as they
    came, however many there are."""
    if not added:
        return body
    return body.rstrip()[:-1] + b"," + msgspec.json.encode(added)[1:]


def forwarded_headers(exchange: Exchange, tracer: RequestTracer | None) -> dict[str, str]:
    """What an engine is told of the client's headers: never keys."""
    headers = {
        "content-type": exchange.headers.get("content-type", JSON),
        "x-request-id": exchange.request_id,
    }
    if tracer is not None and exchange.span is not None:
        tracer.inject(exchange.span, headers)
    elif "traceparent" in exchange.headers:
        headers["traceparent"] = exchange.headers["traceparent"]
    return headers


def target_of(exchange: Exchange) -> str:
    query = f"?{exchange.query.decode('latin-1')}" if exchange.query else ""
    return quote(exchange.path) + query


def deadline_of(exchange: Exchange, timeout_s: float) -> float:
    """Monotonic seconds; the time-out counts from the request's start."""
    return time.monotonic() + timeout_s - exchange.timeline.elapsed_ms() / 1000
