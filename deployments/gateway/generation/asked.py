"""One generating request, from its admission to its record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from deployments.gateway.lookup.in_flight import InFlightKey
from deployments.gateway.request.exchange import Exchange
from serve_app.cache.entry import Probe
from serve_app.cache.keys import CacheKey
from serve_app.dialects import Ending, Reading, Writer
from serve_app.errors import BadRequest, UpstreamRefused
from serve_app.experiments import Assigned
from serve_app.openai.requests import ParsedRequest
from serve_app.request.auth import Identity
from serve_app.request.cache_controls import CacheControls


@dataclass(frozen=True, slots=True)
class Shadowed:
    """An experiment's candidate is asked the same; ``make`` makes its request. Raises: PromptlyError."""

    assigned: Assigned
    make: Callable[[], ParsedRequest]
    model: str
    size: int


@dataclass(slots=True)
class Asked:
    """What a client asks for, and the terms of its request. ``timeout_s`` counts from the request's start.

    A look-up leaves three things: ``vector``, the text's embedding, kept for storing the answer; ``probe``, a
    near entry to compare the engine's answer with; ``refused``, why that entry did not answer.

    ``writer`` writes the answer in the client's dialect; ``None`` for a client of the endpoint itself.
    ``reading``: how it was read from another dialect. ``shadowed``: what an experiment asks besides, once the
    client has its answer.

    ``ending`` is awaited before the last bytes of a complete answer. ``begins_session``: no earlier request
    can have had this session.
    """

    exchange: Exchange
    identity: Identity
    request: ParsedRequest
    key: CacheKey | None
    controls: CacheControls
    priority: int
    failover: bool
    timeout_s: float
    salt: str | None
    session: str | None
    weight: int
    cache_status: str
    reading: Reading | None = None
    writer: Writer | None = None
    ending: Ending | None = None
    begins_session: bool = False
    vector: bytes | None = None
    probe: Probe | None = None
    refused: str | None = None
    shadowed: Shadowed | None = None

    @property
    def may_store(self) -> bool:
        return self.key is not None and self.controls.write

    @property
    def in_flight_key(self) -> InFlightKey | None:
        """``None`` where no other client may join: the answer is not cacheable, or must be fresh."""
        if self.key is None or not (self.controls.read and self.controls.write):
            return None
        return self.key.entry_id, self.request.generation.wants_stream, self.failover

    @property
    def asks_for_usage(self) -> bool:
        """Any member is asked for usage on a stream that may be stored: an entry needs it."""
        return self.may_store and self.request.generation.wants_stream

    @property
    def hides_usage(self) -> bool:
        """The client did not ask for the usage that the engine was asked for. A dialect's writer reads it."""
        return self.writer is None and not self.request.generation.wants_usage

    def keep_vector(self, vector: bytes) -> None:
        self.vector = vector


@contextmanager
def in_its_own_words(reading: Reading | None) -> Iterator[None]:
    """What is wrong with a chat that was read from another dialect is said in that one's words."""
    try:
        yield
    except (BadRequest, UpstreamRefused) as error:
        told = error if reading is None else reading.as_asked(error)
        if told is error:
            raise
        raise told from error
