"""Which thread embeds: lists get one of low priority, and nothing else waits for them."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence

import pytest
from support.held_encoder import HeldEncoder

from deployments.embedder import Encoded, Passes
from deployments.embedder.passes import LIST_NICENESS
from serve_app.settings import EmbedderSettings

SETTINGS = EmbedderSettings(id="words", source="words", max_batch_size=2)


class Watched(HeldEncoder):
    """Notes the thread of each pass, and its niceness."""

    def __init__(self) -> None:
        super().__init__()
        self.opened_on = threading.get_ident()
        self.threads: list[int] = []
        self.niceness: list[int] = []

    def encode(self, texts: Sequence[str]) -> Encoded:
        self.threads.append(threading.get_ident())
        self.niceness.append(_niceness())
        return super().encode(texts)


def _niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a priority for each thread")
async def test_passes_in_the_background_have_a_low_priority_and_others_keep_theirs() -> None:
    usual, encoders = _niceness(), (Watched(), Watched())
    for encoder, background in zip(encoders, (False, True), strict=True):
        await Passes(SETTINGS, lambda opened=encoder: opened, background=background).run(["a", "b", "c"])
    front, behind = encoders
    assert front.niceness == [usual] * 2
    assert behind.niceness == [min(usual + LIST_NICENESS, 19)] * 2
    assert _niceness() == usual


async def test_the_encoder_is_opened_once_and_on_the_thread_of_its_passes() -> None:
    opened: list[Watched] = []

    def open_encoder() -> Watched:
        opened.append(Watched())
        return opened[-1]

    passes = Passes(SETTINGS, open_encoder, background=True)
    assert not opened
    await passes.run(["a"])
    await passes.run(["b"])
    [encoder] = opened
    assert encoder.threads == [encoder.opened_on] * 2
    assert encoder.opened_on != threading.get_ident()
