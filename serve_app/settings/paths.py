"""The paths that a model may offer to clients."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence

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
    "/tokenize",
    "/detokenize",
)
"""Paths that vLLM 0.29 answers from a single request. Paths that change an engine (``/v1/load_lora_adapter``)
or bundle many requests (``/v1/chat/completions/batch``) are left out, and so are those that take uploads."""

UPLOADS = frozenset(
    {
        "/v1/audio/transcriptions",
        "/v1/audio/translations",
        "/v1/files",
        "/v1/images/edits",
        "/v1/images/variations",
    }
)
"""Paths that take ``multipart/form-data``: the gateway refuses it with 415, because it reads only JSON."""

VENDORS_OWN = ("/v1/audio/speech", "/v1/batches", "/v1/fine_tuning/jobs", "/v1/images/generations")
"""Further paths of OpenAI that take JSON. They are no typing errors, so they cause no warning."""

PATH = re.compile(r"/v1(?:/[A-Za-z0-9_-]+)+|/tokenize|/detokenize")


def plain_paths(paths: Sequence[str] | None) -> None:
    """Raises: ValueError: one of the paths cannot be relayed."""
    for path in paths or ():
        if not PATH.fullmatch(path):
            raise ValueError(
                f"{path!r}: expected an exact path such as `/v1/rerank`, `/tokenize` or `/detokenize`"
            )


def doubtful_path(path: str, *, is_vendor: bool) -> str | None:
    """Why offering ``path`` is probably a mistake; ``None`` for a known path."""
    known = {*ENGINE_PATHS, *VENDOR_PATHS, *(VENDORS_OWN if is_vendor else ())}
    if path in known:
        return None
    if path in UPLOADS:
        return "it takes uploads, which are not relayed (415)"
    close = difflib.get_close_matches(path, sorted(known), n=1, cutoff=0.85)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    server = "an OpenAI-compatible server" if is_vendor else "an engine"
    return f"not a path that {server} is known to have{hint}"


def doubtful_paths(where: str, paths: Sequence[str] | None, *, is_vendor: bool) -> Iterator[str]:
    """One line for each doubtful path; ``where`` is the setting that lists them."""
    for index, path in enumerate(paths or ()):
        doubt = doubtful_path(path, is_vendor=is_vendor)
        if doubt is not None:
            yield f"{where}[{index}] = {path!r}: {doubt}"
