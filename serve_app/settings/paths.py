"""Which paths a model may offer to clients."""

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
"""The paths of an external upstream by default. Not ``/v1/responses``, files, batches, images or fine-tuning:
a vendor stores those under our key's account, where one tenant could read another's."""

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
"""What vLLM 0.29 answers from one request alone. Not the paths that change an engine
(``/v1/load_lora_adapter``) or that send many requests as one (``/v1/chat/completions/batch``)."""

PATH = re.compile(r"/v1(?:/[A-Za-z0-9_-]+)+|/tokenize|/detokenize")


def plain_paths(paths: Sequence[str] | None) -> None:
    """Raises: ValueError: one of the paths cannot be relayed."""
    for path in paths or ():
        if not PATH.fullmatch(path):
            raise ValueError(
                f"{path!r}: expected paths such as `/v1/rerank` (or `/tokenize`, `/detokenize`), letter by "
                "letter"
            )
