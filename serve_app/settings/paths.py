"""The paths that a model may offer to clients."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from serve_app.settings.vllm_routes import PRIVATE

VENDOR_PATHS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/moderations",
)
"""Default paths of an external upstream. ``/v1/responses``, files, batches, images and fine-tuning are left
out: a vendor stores them under our key's account, where one tenant could read another's."""

POOLING_TASKS = ("embed", "classify", "token_embed", "token_classify", "plugin", "embed&token_classify")
"""vLLM's names of what a model without generation does (``vllm.tasks``)."""

SCORE = "score"
"""No task of vLLM's, but what its ``enable_scoring_api`` says of a model: it can compare two texts."""

GENERATE = "generate"
POOLING = "/pooling"
ANY_TASK = ("/tokenize", "/detokenize")
"""Any engine answers these, without its model: they cost no tokens."""
AUDIO = ("/v1/audio/transcriptions", "/v1/audio/translations")
REALTIME = "/v1/realtime"
"""A WebSocket, and the only one."""

TASK_PATHS: Mapping[str, tuple[str, ...]] = {
    GENERATE: (
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
    ),
    "embed": ("/v1/embeddings", "/v2/embed"),
    SCORE: ("/v1/score", "/v1/rerank"),
    "classify": ("/classify",),
    "transcription": AUDIO,
    "realtime": (REALTIME,),
}
"""The paths that clients may use, by the task of the model; ``ANY_TASK`` belongs to each of them,
``/pooling`` to each of ``POOLING_TASKS``. vLLM 0.29 answers all but the last from a single request."""

ENGINE_PATHS = (*(path for paths in TASK_PATHS.values() for path in paths), POOLING, *ANY_TASK)
"""Default paths of an engine, of which it offers those of its tasks. Paths that change an engine
(``/v1/load_lora_adapter``), that show its inside (``…/render``, ``/inference/v1/generate``) or that bundle
many requests (``/v1/chat/completions/batch``) are left out."""

OTHER_NAMES: Mapping[str, str] = {
    "/score": "/v1/score",
    "/rerank": "/v1/rerank",
    "/v2/rerank": "/v1/rerank",
    "/v1/classify": "/classify",
    "/v1/pooling": "/pooling",
    "/v1/tokenize": "/tokenize",
    "/v1/detokenize": "/detokenize",
}
"""Further ways to write a path. vLLM has some of them itself; an OpenAI client's base URL ends with
``/v1``."""

ASKED_AS = {"/v1/messages": "/v1/chat/completions", "/v1/messages/count_tokens": "/tokenize"}
"""Paths that the gateway answers itself by asking a member for another path. A model offers them where it
offers that one."""

UPLOADS = frozenset(
    {
        "/v1/files",
        "/v1/images/edits",
        "/v1/images/variations",
    }
)
"""Paths that take ``multipart/form-data``, which the gateway reads only for recordings."""

VENDORS_OWN = ("/v1/audio/speech", "/v1/batches", "/v1/fine_tuning/jobs", "/v1/images/generations")
"""Further paths of OpenAI that take JSON. They are no typing errors, so they cause no warning."""

PATH = re.compile(r"/v1(?:/[A-Za-z0-9_-]+)+|/v2/embed|/classify|/pooling|/tokenize|/detokenize")


def own_name(path: str, offered: Collection[str] = ()) -> str:
    """The path as settings and members write it; a path that is ``offered`` keeps its name."""
    return path if path in offered else OTHER_NAMES.get(path, path)


def task_paths(tasks: Iterable[str]) -> frozenset[str]:
    """The paths of a model that has these tasks."""
    known = set(tasks)
    pooling = (POOLING,) if pools(known) else ()
    return frozenset((*ANY_TASK, *pooling, *(path for task in known for path in TASK_PATHS.get(task, ()))))


def pools(tasks: Iterable[str]) -> bool:
    """Whether a model gives vectors, classes or scores instead of text."""
    return not frozenset(POOLING_TASKS).isdisjoint(tasks)


def offered(paths: Iterable[str], tasks: Iterable[str]) -> frozenset[str]:
    """What an engine offers of the ``paths`` in its settings. A path that no task of vLLM 0.29 has is left to
    the engine."""
    no_task = frozenset(paths).difference(ENGINE_PATHS)
    return no_task | task_paths(tasks).intersection(paths)


def plain_paths(paths: Sequence[str] | None) -> None:
    """Raises: ValueError: one of the paths cannot be relayed."""
    for path in paths or ():
        if not PATH.fullmatch(path):
            raise ValueError(
                f"{path!r}: expected an exact path such as `/v1/rerank`, `/tokenize` or `/detokenize`"
            )


def doubtful_path(path: str, *, is_vendor: bool) -> str | None:
    """Why offering ``path`` is probably a mistake; ``None`` for a known path."""
    known = {*ENGINE_PATHS, *ASKED_AS, *VENDOR_PATHS, *(VENDORS_OWN if is_vendor else ())}
    if path in known:
        return None
    if path in PRIVATE:
        return "a path of vLLM that is not for clients: it changes an engine, or evades checks of a request"
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
