"""Which paths clients may ask for, of each model. Everything else is 404."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from serve_app.errors import NotFound

VENDOR_PATHS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/moderations",
)
"""What a server that is not ours is asked for by default. Not ``/v1/responses``, files, batches, images or
fine-tuning: a vendor keeps those under the account of our key, where one tenant could read another's."""

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
"""What vLLM 0.29 answers from one request alone. Not what changes an engine (``/v1/load_lora_adapter``) or
counts as one request and is many (``/v1/chat/completions/batch``)."""

PATH = re.compile(r"/v1(?:/[A-Za-z0-9_-]+)+|/tokenize|/detokenize")


def plain_paths(paths: Sequence[str] | None) -> None:
    """Raises: ValueError: one is no path that is relayed."""
    for path in paths or ():
        if not PATH.fullmatch(path):
            raise ValueError(
                f"{path!r}: expected paths such as `/v1/rerank` (or `/tokenize`, `/detokenize`), letter by "
                "letter"
            )


def require_offered(offers: Mapping[str, frozenset[str]], path: str, model: str | None = None) -> None:
    """``offers`` are the paths of each model. Without a ``model``: some model has to offer the path.

    A path is what the server has decoded, and is compared letter by letter: nothing that is written in
    another way (dots, escapes, double slashes) is one that is offered.

    Raises: NotFound.
    """
    offered = frozenset[str]().union(*offers.values()) if model is None else offers[model]
    if path in offered:
        return
    who = "No model offers" if model is None else f"The model {model!r} does not offer"
    raise NotFound(
        f"{who} POST {path}; offered: {', '.join(sorted(offered))} (settings: models[].paths, "
        "models[].upstreams[].paths).",
        code="path_not_offered",
    )
