"""The paths that a model may offer to clients."""

from __future__ import annotations

import re
from collections.abc import Sequence

VENDOR_PATHS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/moderations",
)
"""Default paths of an external upstream. ``/v1/responses``, files, batches, images and fine-tuning are left
out: a vendor stores them under our key's account, where one tenant could read another's."""

ENGINE_PATHS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/embeddings",
    "/v1/score",
    "/v1/rerank",
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/tokenize",
    "/detokenize",
)
"""Paths that vLLM 0.29 answers from a single request. Paths that change an engine (``/v1/load_lora_adapter``)
or bundle many requests (``/v1/chat/completions/batch``) are left out."""

PATH = re.compile(r"/v1(?:/[A-Za-z0-9_-]+)+|/tokenize|/detokenize")


def plain_paths(paths: Sequence[str] | None) -> None:
    """Raises: ValueError: one of the paths cannot be relayed."""
    for path in paths or ():
        if not PATH.fullmatch(path):
            raise ValueError(
                f"{path!r}: expected an exact path such as `/v1/rerank`, `/tokenize` or `/detokenize`"
            )
