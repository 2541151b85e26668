"""Limits of one request (nesting, sequences, texts), checked before an engine gets it. The error names the
field and the setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from serve_app.errors import BadRequest
from serve_app.openai.depth import refuse_deep, refuse_deep_arguments
from serve_app.openai.overflow import ANSWER_LIMITS
from serve_app.openai.schemas import refuse_large_schemas
from serve_app.settings import LimitSettings

TEXTS = (
    "input",
    "documents",
    "queries",
    "items",
    "text_1",
    "text_2",
    "data_1",
    "data_2",
    "texts",
    "inputs",
    "tokens",
)
"""The fields that hold the texts of embedding, scoring, reranking and detokenizing requests."""

MESSAGES = "messages"
"""A conversation, or in a batch (``/v1/chat/completions/batch``) a list of them."""

PROMPTS = (MESSAGES, "input", "images")
"""The fields that may hold whole conversations, or images: each is a prompt."""

HOLD_TEXTS = frozenset({*TEXTS, *PROMPTS})
BATCHED = TEXTS[1:]
"""The same without ``input``, which is one conversation on paths other than ``/v1/embeddings``."""


SAMPLING = "sampling_params"
"""Where a request of tokens (``GENERATE``) has what others have at their top."""

SEQUENCES = ("prompt", "prompt_embeds", MESSAGES)
"""The fields of which each item may be a prompt that is answered."""

COUNTED = frozenset({"n", "best_of", *SEQUENCES, SAMPLING})
"""The fields that may ask for more than one sequence."""


COMPLETIONS = "/v1/completions"
GENERATE = "/inference/v1/generate"
"""vLLM's path that takes tokens and gives tokens."""

COMPLETION_TOKENS = 16
"""The default of both, in OpenAI's API as in vLLM."""


LIMITS_OF_COMPLETIONS = ("max_tokens",)
LIMIT_FIELDS = {"/v1/chat/completions": "max_completion_tokens", COMPLETIONS: "max_tokens"}
"""By path, vLLM's field with the most tokens of one answer."""


NOTHING: Mapping[str, Any] = MappingProxyType({})


def refuse_excess(fields: Mapping[str, Any], limits: LimitSettings) -> int:
    """Check the limits of every JSON body, on any path. Returns how many sequences it asks for.

    Raises:
        BadRequest: ``param`` is the field that is too deep, too large or too long.
    """
    refuse_large(fields, limits)
    refuse_many_texts(fields, limits)
    return weigh(fields, limits)


def refuse_large(fields: Mapping[str, Any], limits: LimitSettings) -> None:
    """Check what holds for a conversation in any dialect: ``input`` is then no text that is embedded.

    Raises:
        BadRequest: ``param`` is the field that is too deep or too large.
    """
    refuse_deep(fields, limits.max_json_depth)
    refuse_deep_arguments(fields, limits.max_json_depth)
    refuse_large_schemas(fields, limits)


def weigh(fields: Mapping[str, Any], limits: LimitSettings) -> int:
    """How many sequences an engine generates for the request at once: answers (``n``, which with beam search
    is the width of the beam; or ``best_of`` on older engines) times prompts.

    Raises:
        BadRequest: more than ``limits`` allow.
    """
    if COUNTED.isdisjoint(fields):
        return 1
    answers = 1
    for name in ("n", "best_of"):
        answers = max(answers, _count(fields.get(name)), _count(_sampling(fields).get(name)))
        if answers > limits.max_n:
            raise BadRequest(
                f"`{name}` is {answers}; at most {limits.max_n} answers (limits.max_n).",
                param=name,
                code="too_many_answers",
            )
    name, prompts = _most_prompts(fields)
    _refuse_many_prompts(name, prompts, limits)
    return answers * prompts


def _refuse_many_prompts(name: str, prompts: int, limits: LimitSettings) -> None:
    if prompts > limits.max_prompts:
        raise BadRequest(
            f"`{name}` holds {prompts} prompts; at most {limits.max_prompts} (limits.max_prompts).",
            param=name,
            code="too_many_prompts",
        )


def _whole_prompts(name: str, value: Any) -> int:
    """How many conversations or images it holds; a list of texts or messages is none of them."""
    if not isinstance(value, list) or not value:
        return 0
    first = value[0]
    if name == "images":
        return len(value)
    if name == MESSAGES:
        return len(value) if isinstance(first, list) else 0
    return len(value) if isinstance(first, list) and first and isinstance(first[0], dict) else 0


def weight_field(fields: Mapping[str, Any]) -> str:
    """The field that makes a request ask for more than one sequence."""
    if fields.get("n") not in (None, 1):
        return "n"
    return MESSAGES if _whole_prompts(MESSAGES, fields.get(MESSAGES)) > 1 else "prompt"


def _most_prompts(fields: Mapping[str, Any]) -> tuple[str, int]:
    """The field with the most prompts. A conversation is one, whatever number of messages it has."""
    counts = {
        name: _whole_prompts(name, value) if name == MESSAGES else count_prompts(value)
        for name, value in ((name, fields.get(name)) for name in SEQUENCES)
    }
    name = max(counts, key=counts.__getitem__)
    return name, counts[name]


def count_prompts(prompt: Any) -> int:
    """A text is one prompt, and so is a list of numbers; any other list has one prompt per item."""
    if not isinstance(prompt, list) or not prompt or isinstance(prompt[0], int | float):
        return 1
    return len(prompt)


def _count(value: Any) -> int:
    """The number as engines read it (``2``, ``2.0``, ``"2"``). Values that they refuse count as 1, so that
    the engine reports the error."""
    try:
        return max(1, int(value)) if isinstance(value, int | float | str) else 1
    except (ValueError, OverflowError):
        return 1


def refuse_many_texts(fields: Mapping[str, Any], limits: LimitSettings) -> None:
    """Check how many texts are embedded or scored, and their total length. A list of numbers is one text; a
    token id counts as one character, because its length is unknown.

    Raises:
        BadRequest: beyond ``limits``; ``param`` is the field.
    """
    if HOLD_TEXTS.isdisjoint(fields):
        return
    for name in PROMPTS:
        _refuse_many_prompts(name, _whole_prompts(name, fields.get(name)), limits)
    for name in TEXTS:
        value = fields.get(name)
        if not isinstance(value, str | list):
            continue
        texts = value if isinstance(value, list) and count_prompts(value) > 1 else [value]
        if len(texts) > limits.max_embedding_inputs:
            raise BadRequest(
                f"`{name}` holds {len(texts)} texts; at most {limits.max_embedding_inputs} "
                "(limits.max_embedding_inputs).",
                param=name,
                code="too_many_inputs",
            )
        characters = sum(len(text) for text in texts if isinstance(text, str | list))
        if characters > limits.max_embedding_characters:
            raise BadRequest(
                f"`{name}` is {characters} characters long in all; at most {limits.max_embedding_characters} "
                "(limits.max_embedding_characters).",
                param=name,
                code="input_too_long",
            )


def count_texts(fields: Mapping[str, Any], names: Iterable[str]) -> int:
    """How many texts an engine embeds or scores for the request: at least one."""
    return max(count_prompts(fields.get(name)) for name in names)


def asked_output(path: str, fields: Mapping[str, Any]) -> int | None:
    """The most tokens that one answer may have, as the request says; ``None`` if it does not. ``path`` is the
    member's. Fields that vLLM does not read on that path say nothing."""
    if path == GENERATE:
        asked = [_sampling(fields).get("max_tokens")]
    else:
        asked = [
            fields.get(name) for name in (LIMITS_OF_COMPLETIONS if path == COMPLETIONS else ANSWER_LIMITS)
        ]
    least = 0 if path == COMPLETIONS else 1  # none at all is valid with `echo`
    given = [most for most in asked if isinstance(most, int) and not isinstance(most, bool) and most >= least]
    return max(given, default=None)


def default_output(path: str, fields: Mapping[str, Any]) -> int | None:
    """The same where the request leaves it to vLLM; ``None``: it does not, or vLLM gives what the context has
    room for, as it does with `null`."""
    if path == COMPLETIONS:
        return None if "max_tokens" in fields else COMPLETION_TOKENS
    return COMPLETION_TOKENS if path == GENERATE and "max_tokens" not in _sampling(fields) else None


def _sampling(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    found = fields.get(SAMPLING)
    return found if isinstance(found, dict) else NOTHING
