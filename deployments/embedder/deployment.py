"""The Embedder deployment: a text encoder with dynamic batching and a cache of recent texts."""

from __future__ import annotations

from functools import partial

from deployments.embedder import Passes, RecentEmbeddings, TextEncoder, open_configured
from deployments.platform.serve import node_address
from deployments.platform.telemetry import call_tracer
from deployments.wire.direct_calls import DirectCalls, DirectlyCalled
from serve_app.embedding import EmbedderInfo, Embedding
from serve_app.settings import EmbedderSettings
from serve_app.settings.network import ANY_PORT
from serve_app.wire.calls import EMBEDDER
from serve_app.wire.private_address import PrivateAddress

WARM_UP_TEXT = "What does the first request find already warm?"


class Embedder(DirectlyCalled):
    """Embeds texts as unit vectors. Calls that arrive during a pass form the next one. A text that was
    embedded recently (a look-up missed, and now its answer is stored) is answered from memory.

    A call of more texts than a pass holds is a list, such as documents that somebody indexes. On a CPU lists
    have a thread of low priority with an encoder of its own: they may take a core for minutes, and share it
    with gateways, proxy and look-ups, whose clients count milliseconds."""

    def __init__(
        self, settings: EmbedderSettings, encoder: TextEncoder | None = None, *, ports: range = ANY_PORT
    ) -> None:
        """``encoder``: by default the one that the settings name. ``ports``: for direct calls."""
        self._ports = ports
        self._source, self._dtype = settings.source, settings.dtype
        self._most = settings.max_batch_size
        self.recent = RecentEmbeddings(settings.recent_texts)
        opened = open_configured(settings) if encoder is None else encoder
        self._passes = self._lists = Passes(settings, lambda: opened)
        # A second graph takes tens of MB, once there is a list. A second model of torch would take more.
        if encoder is None and settings.chosen_backend == "onnx":
            self._lists = Passes(settings, partial(open_configured, settings), background=True)
        self._direct: DirectCalls | None = None
        self._encoder = opened
        self._passes.warm_up(WARM_UP_TEXT)

    async def embed(self, texts: list[str], tag: str = "") -> list[Embedding]:
        """One embedding per text, in order. ``tag`` identifies the texts' owner: owners take turns, and share
        no recent texts, because response times would reveal what another one asked.

        A text longer than ``EmbedderInfo.max_tokens`` is truncated: its vector represents only its beginning,
        and ``Embedding.truncated`` is set.
        """
        return await self._known_or_run(texts, tag, is_look_up=False)

    async def embed_for_look_up(self, texts: list[str], tag: str) -> list[Embedding]:
        """The same for a look-up in the cache: it has milliseconds, and goes before other texts."""
        return await self._known_or_run(texts, tag, is_look_up=True)

    async def _known_or_run(self, texts: list[str], tag: str, *, is_look_up: bool) -> list[Embedding]:
        if len(texts) > self._most:  # a list would evict the look-ups' texts
            return await self._lists.run(texts, tag)
        known = {text: found for text in dict.fromkeys(texts) if (found := self.recent.get(text, tag))}
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        made = await self._passes.run(missing, tag, is_look_up=is_look_up)
        for text, embedding in zip(missing, made, strict=True):
            self.recent.put(text, embedding, tag)
            known[text] = embedding
        return [known[text] for text in texts]

    @property
    def waiting(self) -> int:
        """Texts that are in no pass yet, and whose callers still wait."""
        return sum(passes.waiting for passes in {self._passes, self._lists})

    async def address(self) -> PrivateAddress:
        """The address to which gateways send the texts of look-ups; all other texts come through Serve."""
        if self._direct is None:
            self._direct = DirectCalls(
                EMBEDDER,
                {"embed": self.embed_for_look_up},
                node_address(),
                call_tracer("embedder"),
                abandoned=["embed"],
                ports=self._ports,
            )
        return self._direct.address

    async def describe(self) -> EmbedderInfo:
        encoder = self._encoder
        return EmbedderInfo(encoder.name, encoder.dimension, encoder.max_tokens, self._source, self._dtype)

    def __del__(self) -> None:
        """Serve calls this when the replica ends; callers repeat running calls through the handle."""
        direct: DirectCalls | None = getattr(self, "_direct", None)
        if direct is not None:
            direct.forget()
