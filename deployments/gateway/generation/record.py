"""What is recorded of a generating request: its answer for the store, and whose it was."""

from __future__ import annotations

from deployments.gateway.generation.asked import Asked
from deployments.gateway.lookup.store_client import CacheClient
from deployments.gateway.request.answer import Head
from serve_app.monitoring.loops import mark_of
from serve_app.openai import answers
from serve_app.openai.requests import ParsedRequest


class Recorder:
    """Queues complete answers for the store."""

    def __init__(self, cache: CacheClient | None) -> None:
        self._cache = cache

    def store(self, asked: Asked, head: Head, recorded: list[bytes], *, writes: bool = True) -> None:
        """Queue a complete answer, also when the client that asked first has left. Without ``writes`` it is
        only remembered: another gateway stores it."""
        if self._cache is None or asked.key is None or head.status != 200:
            return
        answer = _read(asked.request, recorded)
        if answer is None:
            return
        started_ns = asked.exchange.timeline.clock()
        headers = asked.exchange.headers
        entry = self._cache.new_entries.make(asked.key, asked.controls, headers, answer)
        if entry is not None:
            self._cache.memory.put(entry)
            if writes:
                self._cache.writes.add(entry, asked.vector, semantic=asked.key.semantic)
        if writes and asked.probe is not None:
            self._cache.writes.compare(asked.key.partition, asked.probe, answer)
        asked.exchange.timeline.add("store", started_ns)


def record(asked: Asked) -> None:
    """What was asked for; steps are recorded for every exchange alike."""
    facts = asked.exchange.facts
    facts.model, facts.cache = asked.request.model, asked.cache_status
    if asked.session is not None:
        facts.ask = mark_of(asked.session, asked.request.generation)


def _read(request: ParsedRequest, recorded: list[bytes]) -> answers.Answer | None:
    if request.generation.wants_stream:
        return answers.answer_from_stream(request.endpoint, recorded)
    return answers.answer_from_json(request.endpoint, b"".join(recorded))
