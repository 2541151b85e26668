"""``/v1/audio/transcriptions`` and ``/v1/audio/translations``: uploaded recordings, cached by their
content."""

from __future__ import annotations

import math
import time
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from deployments.gateway.guardrails.guards import Guards, Held
from deployments.gateway.guardrails.streams import GuardedAnswer, guarded_body
from deployments.gateway.lookup.item_cache import ItemCache, ItemTerms
from deployments.gateway.request.answer import Answer, OwnAnswer
from deployments.gateway.request.bodies import Bodies
from deployments.gateway.request.call import (
    Call,
    Message,
    Purpose,
    SlotRequest,
    deadline_of,
    forwarded_headers,
    target_of,
)
from deployments.gateway.request.exchange import Exchange
from deployments.gateway.request.gate import uses_model
from deployments.gateway.request.tenant_room import TenantRoom
from deployments.gateway.request.uploads import Upload, UploadedForm
from deployments.gateway.send.dispatch import Dispatcher
from deployments.gateway.send.relay import read_all, relay
from deployments.platform.telemetry import RequestTracer
from serve_app.admission import request_priority
from serve_app.errors import BadRequest, NotFound, OverCapacity
from serve_app.guardrails import Stage
from serve_app.items.recordings import CHUNK_S, TOKENS_PER_S, recording_key
from serve_app.latency import LatencyWindows
from serve_app.media.audio import audio_seconds
from serve_app.media.forms import FILE
from serve_app.model_choice.names import ModelNames
from serve_app.model_choice.offers import Offers
from serve_app.openai.leniency import is_true
from serve_app.openai.requests import required_string
from serve_app.openai.usage import measured_relayed
from serve_app.request.auth import Identity
from serve_app.request.cache_controls import parse_controls
from serve_app.request.deadline import request_timeout_s
from serve_app.routing import RoutingRequest
from serve_app.settings import Settings
from serve_app.settings.media import MediaSettings

PACE = "audio-ms-per-s"
"""The real-time factor in thousandths: milliseconds that a client waits, in the queue too, for each second of
its recording."""

SEPARATOR = b"\0"


@dataclass(frozen=True, slots=True)
class Recording:
    """An upload that has arrived. ``key`` is ``None`` if its answer is not kept."""

    exchange: Exchange
    identity: Identity
    timeout_s: float
    uploaded: UploadedForm
    model: str
    seconds: float
    key: bytes | None
    terms: ItemTerms


class AudioEndpoint:
    """``cache`` is ``None`` without one. It is long because an upload is read, looked up, asked for and kept
    here."""

    def __init__(
        self,
        settings: Settings,
        *,
        bodies: Bodies,
        offers: Offers,
        dispatcher: Dispatcher,
        cache: ItemCache | None,
        names: ModelNames,
        tracer: RequestTracer | None,
        latency: LatencyWindows,
        guards: Guards | None = None,
    ) -> None:
        self._guards = guards
        self._media = settings.media
        self._timeout_s = settings.limits.request_timeout_s
        self._bodies = bodies
        self._offers = offers
        self._dispatcher = dispatcher
        self._cache = cache
        self._names = names
        self._tracer = tracer
        self._latency = latency
        self._room = TenantRoom(self._media.max_uploads, self._media.max_uploads_per_tenant)

    async def __call__(self, exchange: Exchange) -> None:
        identity = exchange.identity
        if exchange.method != "POST":
            raise NotFound(f"No such path: {exchange.method} {exchange.path}.", code="not_found")
        self._offers.require(exchange.path)
        with self._room.take(identity.tenant) as place:
            if not place.size:
                raise _full(self._media, own=self._room.is_tenants_own(identity.tenant))
            with closing(Upload(exchange.headers["content-type"], self._media.upload_folder)) as upload:
                recording = await self._read(exchange, identity, upload)
                await exchange.run(self._answer(recording), recording.timeout_s)

    async def _read(self, exchange: Exchange, identity: Identity, upload: Upload) -> Recording:
        timeout_s = request_timeout_s(exchange.headers, self._timeout_s)
        await self._bodies.read_into(exchange, identity.tenant, upload)
        uploaded = await upload.form()
        form = uploaded.form
        model = required_string(dict(form.fields), "model")
        fingerprint = self._offers.fingerprint(model)
        self._offers.require(exchange.path, model)
        uses_model(exchange, model, self._names.own(model))
        if self._guards is not None:
            has_prompt = bool(form.get("prompt"))
            self._guards.refuse_unseen_recording(model, identity.tenant, exchange.path, has_prompt=has_prompt)
        seconds = await _length(uploaded, self._media.max_audio_s)
        exchange.facts.audio_s = seconds
        terms = ItemTerms(
            identity.tenant, self._names.own(model), "", exchange.headers, parse_controls(exchange.headers)
        )
        key = None
        if self._cache is not None and self._cache.keeps(self._names.model_of(model)):
            terms = self._cache.at_begin(terms)
            key = recording_key(
                exchange.path,
                form,
                tenant=identity.tenant,
                model=self._names.own(model),
                fingerprint=fingerprint,
                by=self._cache.partition_by,
            )
        return Recording(exchange, identity, timeout_s, uploaded, model, seconds, key, terms)

    async def _answer(self, recording: Recording) -> None:
        exchange = recording.exchange
        known = self._known(recording)
        if known is not None:
            content_type, _, body = known.partition(SEPARATOR)
            exchange.response_headers |= {"x-cache": "exact", "x-served-by": "cache"}
            body = await self._guarded(recording, content_type.decode(), body)
            await exchange.respond(200, body, content_type.decode(), exchange.server_timing(ended=True))
            return
        exchange.response_headers["x-cache"] = "bypass" if recording.key is None else "miss"
        began = time.monotonic()
        answer: Answer = OwnAnswer(self._dispatcher.open(_call(recording, self._tracer)))
        if is_true(recording.uploaded.form.get("stream")):
            held = self._held(recording)
            await relay(exchange, answer if held is None else GuardedAnswer(answer, held))
            self._measure(recording, began)
            return
        try:
            opened = await answer.begin()
            body = await read_all(opened)
        finally:
            answer.close()
        head = opened.head
        exchange.facts.measured = measured_relayed(body)
        exchange.response_headers["x-served-by"] = head.served_by
        self._measure(recording, began)
        passed = await self._guarded(recording, head.content_type, body) if head.status == 200 else body
        await exchange.respond(head.status, passed, head.content_type, exchange.server_timing(ended=True))
        if head.status == 200 and self._cache is not None and recording.key is not None:
            value = head.content_type.encode() + SEPARATOR + body
            self._cache.keep([recording.key], [value], recording.terms)

    def _held(self, recording: Recording) -> Held | None:
        """The guards of the transcript."""
        if self._guards is None:
            return None
        tenant, path = recording.identity.tenant, recording.exchange.path
        return self._guards.held(Stage.AFTER, models=(recording.model,), tenant=tenant, path=path)

    async def _guarded(self, recording: Recording, content_type: str, body: bytes) -> bytes:
        held = self._held(recording)
        return body if held is None else await guarded_body(held, content_type, body)

    def _known(self, recording: Recording) -> bytes | None:
        if self._cache is None or recording.key is None:
            return None
        (found,) = self._cache.find([recording.key], recording.terms, recording.exchange.timeline)
        return found

    def _measure(self, recording: Recording, began: float) -> None:
        """The queue counts: it is what a client waits."""
        if recording.seconds > 0:
            self._latency.record(PACE, (time.monotonic() - began) * 1000 / recording.seconds)


def _full(media: MediaSettings, *, own: bool) -> OverCapacity:
    most, whose = (media.max_uploads_per_tenant, "of this tenant ") if own else (media.max_uploads, "")
    setting = "max_uploads_per_tenant" if own else "max_uploads"
    return OverCapacity(f"{most} recordings {whose}are being uploaded or answered (media.{setting}).", 1)


async def _length(uploaded: UploadedForm, most_s: float) -> float:
    seconds = await uploaded.file.look(audio_seconds)
    if seconds is None:
        raise BadRequest(
            "`file` is no recording: expected WAV, FLAC, Ogg, MP3, MP4 or WebM.",
            param=FILE,
            code="invalid_audio",
        )
    if seconds > most_s:
        raise BadRequest(
            f"`file` is {seconds:.0f} s long; at most {most_s:g} (media.max_audio_s).",
            param=FILE,
            code="audio_too_long",
        )
    return seconds


def _call(recording: Recording, tracer: RequestTracer | None) -> Call:
    exchange, identity, form = recording.exchange, recording.identity, recording.uploaded.form
    fields: dict[str, Any] = dict(form.fields)
    message = Message(
        method=exchange.method,
        target=target_of(exchange),
        body=b"",
        fields=fields,
        headers=forwarded_headers(exchange, tracer),
        best_priority=identity.best_priority,
        form=recording.uploaded,
    )
    slot = SlotRequest(
        account=exchange.account,
        tenant=identity.tenant,
        path=exchange.path,
        priority=request_priority(exchange.headers, identity.best_priority),
        deadline=deadline_of(exchange, recording.timeout_s),
        timeline=exchange.timeline,
        routing=RoutingRequest(recording.seconds * TOKENS_PER_S),
        weight=max(1, math.ceil(recording.seconds / CHUNK_S)),
        weight_field=FILE,
        in_parts=True,
    )
    return Call(model=recording.model, purpose=Purpose.RELAY, slot=slot, message=message, body=form.content)
