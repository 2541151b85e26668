"""``/v1/embeddings``, ``/pooling``, ``/classify``, ``/v1/score``, ``/v1/rerank``, ``/v2/embed``,
``/tokenize`` and ``/detokenize``: items that are known come from memory, the engine is asked for the
others."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deployments.gateway.endpoints.verbatim import JsonRequest, Verbatim, changed
from deployments.gateway.lookup.item_cache import ItemCache, ItemTerms
from deployments.gateway.request.call import Call
from deployments.gateway.request.exchange import JSON, Exchange
from deployments.gateway.request.finished import CACHE
from deployments.gateway.request.images import Images
from deployments.gateway.send.relay import read_all
from serve_app.errors import NotFound, UpstreamFailed
from serve_app.items.keys import item_keys, users_of
from serve_app.items.pairs import PAIRED
from serve_app.items.registry import SHAPES
from serve_app.items.shape import Shape, Split
from serve_app.model_choice.names import ModelNames
from serve_app.model_choice.offers import Offers
from serve_app.openai.bounds import TEXTS, count_texts
from serve_app.openai.usage import measured_relayed
from serve_app.request.cache_controls import parse_controls
from serve_app.routing.prompt import relayed_tokens
from serve_app.settings.paths import own_name
from serve_app.traffic import Traffic

CHAT_TOKENS = "/tokenize"
"""Takes the messages of a chat, whose images vLLM decodes to count them."""

TEXT_FIELDS = (*TEXTS, "messages")


@dataclass(frozen=True, slots=True)
class Known:
    """The items of a request that can be cached: their ``keys``, and the values that were ``found``."""

    shape: Shape
    split: Split
    keys: tuple[bytes, ...]
    found: Sequence[bytes | None]
    terms: ItemTerms

    @property
    def missing(self) -> list[int]:
        return [index for index, value in enumerate(self.found) if value is None]


class ItemsEndpoint:
    """``cache`` is ``None`` without one."""

    def __init__(
        self,
        offers: Offers,
        verbatim: Verbatim,
        cache: ItemCache | None,
        *,
        images: Images,
        names: ModelNames,
        traffic: Traffic,
    ) -> None:
        self._offers = offers
        self._verbatim = verbatim
        self._cache = cache
        self._images = images
        self._names = names
        self._traffic = traffic

    async def __call__(self, exchange: Exchange) -> None:
        identity = exchange.identity
        if exchange.method != "POST":
            raise NotFound(f"No such path: {exchange.method} {exchange.path}.", code="not_found")
        self._offers.require(self._offers.path_of(exchange.path))
        await self.answer(await self._verbatim.read(exchange, identity))

    async def answer(self, sent: JsonRequest) -> None:
        """Raises: BadRequest, UnknownModel, EmbedderOnly, NotFound, and what keeps it from beginning."""
        asked = self._verbatim.offered(sent)
        if own_name(asked.path) == CHAT_TOKENS:
            asked = changed(asked, await self._images.take_in(asked.fields, asked.identity.tenant))
        shape = SHAPES[own_name(asked.path)]
        split = shape.split(asked.fields)
        known = None if split is None else self._known(asked, shape, split)
        if known is None:
            asked.exchange.response_headers["x-cache"] = "bypass"
            await self._relay(asked, shape, split)
            return
        self._count(asked.exchange, known)
        await asked.exchange.run(self._assemble(asked, known), asked.timeout_s)

    def _known(self, asked: JsonRequest, shape: Shape, split: Split) -> Known | None:
        """``None``: nothing of the answer may be kept."""
        model, cache = self._names.own(asked.model), self._cache
        if cache is None or not cache.keeps(self._names.model_of(asked.model)):
            return None
        tenant, headers = asked.identity.tenant, asked.exchange.headers
        keys = item_keys(
            shape,
            split,
            tenant=tenant,
            model=model,
            fingerprint=self._offers.fingerprint(asked.model),
            by=users_of(asked.fields, cache.partition_by),
        )
        if keys is None:
            return None
        text = asked.body.decode(errors="replace")
        terms = cache.at_begin(ItemTerms(tenant, model, text, headers, parse_controls(headers)))
        return Known(shape, split, keys, cache.find(keys, terms, asked.exchange.timeline), terms)

    def _count(self, exchange: Exchange, known: Known) -> None:
        total, missing = len(known.found), len(known.missing)
        self._traffic.items += total
        self._traffic.items_cached += total - missing
        status = {0: "exact", total: "miss"}.get(missing, "partial")
        exchange.response_headers |= {"x-cache": status, "x-cache-items": f"{total - missing}/{total}"}

    async def _relay(self, asked: JsonRequest, shape: Shape, split: Split | None) -> None:
        """The engine's own answer to the client's own request."""
        if split is not None:
            tokens = max(relayed_tokens(asked.body), _tokens(split, range(len(split.items))))
            await self._verbatim.relay(asked, weight=len(split.items), in_parts=True, tokens=tokens)
            return
        texts = count_texts(asked.fields, TEXT_FIELDS)
        # Where fields of several scores stand together, any text may be read with each of the others.
        readings = texts if shape.family in PAIRED else 1
        tokens = relayed_tokens(asked.body) * readings
        await self._verbatim.relay(asked, weight=texts, in_parts=True, tokens=tokens)

    async def _assemble(self, asked: JsonRequest, known: Known) -> None:
        missing = known.missing
        if not missing:
            head = known.shape.head(asked.exchange.request_id, int(time.time()), known.terms.model)
            await _write(asked, known, head, [value or b"" for value in known.found], CACHE)
            return
        answer = self._verbatim.ask(self._call(asked, known, missing))
        try:
            opened = await answer.begin()
            body = await read_all(opened)
        finally:
            answer.close()
        asked.exchange.facts.measured = measured_relayed(body)
        served_by, status, content_type = opened.head.served_by, opened.head.status, opened.head.content_type
        fresh = known.shape.read(body, len(missing)) if content_type.startswith(JSON) else None
        if fresh is None or status != 200:
            await _pass_on(asked, known, body, status=status, content_type=content_type, by=served_by)
            return
        values = list(known.found)
        for index, value in zip(missing, fresh.values, strict=True):
            values[index] = value
        await _write(asked, known, fresh.head, [value or b"" for value in values], served_by)
        assert self._cache is not None, "its items are known by their keys"
        self._cache.keep([known.keys[index] for index in missing], fresh.values, known.terms)

    def _call(self, asked: JsonRequest, known: Known, missing: Sequence[int]) -> Call:
        tokens = _tokens(known.split, missing)
        fields = known.shape.only(asked.fields, missing)
        return self._verbatim.call(
            asked,
            weight=len(missing),
            in_parts=True,
            tokens=tokens,
            fields=None if fields == asked.fields else fields,
        )


def _tokens(split: Split, wanted: Collection[int]) -> float:
    """Estimated, of all texts that an engine reads for these items: one that goes with each counts so
    often."""
    often = 0.0 if split.first is None else len(wanted) * relayed_tokens(split.first)
    return often + relayed_tokens(b",".join(split.texts(wanted)))


async def _pass_on(
    asked: JsonRequest, known: Known, body: bytes, *, status: int, content_type: str, by: str
) -> None:
    """An answer in another form than vLLM's: as it is, if it is one to the whole request."""
    if len(known.missing) < len(known.found):
        raise UpstreamFailed("The engine's answer has another form than before.", code="upstream_failed")
    exchange = asked.exchange
    exchange.response_headers["x-served-by"] = by
    await exchange.respond(status, body, content_type, exchange.server_timing(ended=True))


async def _write(
    asked: JsonRequest, known: Known, head: Mapping[str, Any], values: Sequence[bytes], by: str
) -> None:
    exchange = asked.exchange
    exchange.response_headers["x-served-by"] = by
    body = known.shape.write(asked.fields, head, values)
    await exchange.respond(200, body, JSON, exchange.server_timing(ended=True))
