"""Parses a request body once, and refuses wrong fields with a message that names them.

Only the fields that Promptly reads have types here; the engine checks all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, TypeVar

import msgspec

from serve_app.errors import BadRequest
from serve_app.json_errors import in_json_words, no_json
from serve_app.openai.leniency import plainly

T = TypeVar("T")
CACHE_SALT = "cache_salt"
"""vLLM's field: requests with different salts share no cached prefixes."""

MAX_CACHE_SALT = 1024
MAY_BE_NULL = frozenset({"assistant", "function"})
"""Roles whose content may be null. vLLM refuses it of the others, in the names of its own classes."""

PositiveInt = Annotated[int, msgspec.Meta(ge=1)]


TOKENS_AS_INPUT = (
    "`input` holds token ids, which belong to another tokenizer than this model's: send texts. LangChain's "
    "OpenAIEmbeddings sends texts with check_embedding_ctx_length=False."
)


DECIDED = frozenset(
    {
        *("model", "messages", "prompt", "input", "inputs", "system", "instructions", "tools", "functions"),
        *("n", "best_of", "max_tokens", "max_completion_tokens", "max_output_tokens", "stream"),
        *("stream_options", "priority", "response_format", "documents", "query", "queries", CACHE_SALT),
    }
)
"""Fields by which the gateway decides. Servers that ignore the case of names (many that are written in Go)
would read another one than was looked at here."""


class Endpoint(Enum):
    """The generating endpoints; the value is the path."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """What chat and text completions have in common."""

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: PositiveInt | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None  # 0 is valid with `echo`
    max_completion_tokens: PositiveInt | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0)] | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    stop: str | list[str] | None = None

    @property
    def wants_stream(self) -> bool:
        return bool(self.stream)

    @property
    def wants_usage(self) -> bool:
        """Whether the client wants a usage chunk at the end of a stream."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)


class Message(msgspec.Struct, frozen=True):
    role: Annotated[str, msgspec.Meta(min_length=1)]
    content: str | list[dict[str, Any]] | None = None


class ChatRequest(Generation, frozen=True, kw_only=True):
    messages: Annotated[list[Message], msgspec.Meta(min_length=1)]


class CompletionRequest(Generation, frozen=True, kw_only=True):
    prompt: str | list[Any] | None = None
    prompt_embeds: Any = None


class EmbeddingRequest(msgspec.Struct, frozen=True):
    model: str
    input: str | Annotated[list[str], msgspec.Meta(min_length=1)]
    encoding_format: str | None = None
    dimensions: PositiveInt | None = None
    truncate_prompt_tokens: Annotated[int, msgspec.Meta(ge=-1)] | None = None
    truncation_side: str | None = None

    @property
    def texts(self) -> list[str]:
        return [self.input] if isinstance(self.input, str) else self.input


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """One generating request: the typed part, and the whole body as sent."""

    endpoint: Endpoint
    generation: ChatRequest | CompletionRequest
    fields: Mapping[str, Any]
    body: bytes

    @property
    def model(self) -> str:
        return self.generation.model


def parse_json(body: bytes) -> dict[str, Any]:
    """The body as a JSON object.

    Raises:
        BadRequest: it is not JSON, or not an object; or a field is named as one of ``DECIDED``, but for case.
    """
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = no_json(error, body)
        raise BadRequest(f"The request body is not valid JSON: {why}.", code="invalid_json") from error
    except RecursionError as error:
        raise BadRequest("The request body is nested too deeply.", code="nested_too_deeply") from error
    if not isinstance(fields, dict):
        raise BadRequest("The request body must be a JSON object.", code="invalid_json")
    for name in fields.keys() - DECIDED:
        if (meant := name.casefold()) in DECIDED:
            raise BadRequest(
                f"`{name}` is not `{meant}`: names of fields are lower case.",
                param=name,
                code="unknown_field",
            )
    return fields


def parse_generation(endpoint: Endpoint, body: bytes) -> ParsedRequest:
    """A chat or text completion request, with lenient values converted (:mod:`serve_app.openai.leniency`).

    Raises:
        BadRequest: not JSON, or a field of the wrong type or range; ``param`` is the field.
    """
    return generation_from(endpoint, parse_json(body), body)


def generation_from(endpoint: Endpoint, sent: Mapping[str, Any], body: bytes | None = None) -> ParsedRequest:
    """The same from a decoded body. ``body`` are the bytes it came in, which engines are sent; ``None`` for a
    request that did not come in this form. Raises: BadRequest."""
    fields = plainly(sent)
    if body is None or fields is not sent:
        body = msgspec.json.encode(fields)
    if endpoint is Endpoint.CHAT:
        chat = convert(fields, ChatRequest)
        _refuse_null_content(chat.messages, fields["messages"])
        return ParsedRequest(endpoint, chat, fields, body)
    request = convert(fields, CompletionRequest)
    if request.prompt is None and request.prompt_embeds is None:
        raise BadRequest("Missing required field `prompt`.", param="prompt", code="missing_field")
    return ParsedRequest(endpoint, request, fields, body)


def _refuse_null_content(messages: list[Message], sent: list[dict[str, Any]]) -> None:
    """A message without the field is left to the engine, which takes it as empty. Raises: BadRequest."""
    for place, message in enumerate(messages):
        if message.content is None and message.role not in MAY_BE_NULL and "content" in sent[place]:
            param = f"messages[{place}].content"
            raise BadRequest(
                f"Invalid value for `{param}`: null, but a message of the role {message.role[:100]!r} needs "
                "a text or a list of parts.",
                param=param,
                code="invalid_value",
            )


def embedding_request(fields: Mapping[str, Any]) -> EmbeddingRequest:
    """An embedding request from a decoded body. Token ids as input are refused: the request does not name
    their tokenizer, and clients usually use OpenAI's.

    Raises:
        BadRequest: as :func:`parse_generation`.
    """
    if _holds_tokens(fields.get("input")):
        raise BadRequest(TOKENS_AS_INPUT, param="input", code="tokens_not_supported")
    request = convert(plainly(fields), EmbeddingRequest)
    if any(not text for text in request.texts):
        raise BadRequest("`input` must not be an empty text.", param="input")
    if request.encoding_format not in {None, "float", "base64"}:
        raise BadRequest(
            f"`encoding_format` is {request.encoding_format!r}; expected 'float' or 'base64'.",
            param="encoding_format",
        )
    return request


def _holds_tokens(given: Any) -> bool:
    """Whether it is a list of token ids, or a list of such lists."""
    first = given[0] if isinstance(given, list) and given else None
    return isinstance(first, int) or (isinstance(first, list) and bool(first) and isinstance(first[0], int))


def required_string(fields: Mapping[str, Any], name: str) -> str:
    """Raises: BadRequest: the field is missing, empty or not a string."""
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise BadRequest(f"Missing required field `{name}`.", param=name, code="missing_field")
    return value


MAY_HOLD_MEDIA = frozenset(
    {
        *("messages", "input", "inputs", "query", "queries", "documents", "items"),
        *("text_1", "text_2", "data_1", "data_2"),
    }
)
"""The fields in which vLLM reads content parts, with the names that its own paths have for them."""


def own_cache_salt(fields: Mapping[str, Any]) -> str | None:
    """The client's own ``cache_salt``, with vLLM's limit on its length.

    Raises:
        BadRequest: it is not a text of 1 to 1,024 characters.
    """
    salt = fields.get(CACHE_SALT)
    if salt is None or (isinstance(salt, str) and 1 <= len(salt) <= MAX_CACHE_SALT):
        return salt
    raise BadRequest(
        f"`{CACHE_SALT}` must be a text of 1 to {MAX_CACHE_SALT} characters.",
        param=CACHE_SALT,
        code="invalid_value",
    )


def refuse_named_media(fields: Mapping[str, Any]) -> None:
    """Refuse media with a ``uuid``: vLLM caches media under it, and a ``uuid`` alone then stands for media
    that another tenant may have sent.

    Raises:
        BadRequest: a content part of a message, or of something to embed or score, has a ``uuid``.
    """
    for name in MAY_HOLD_MEDIA & fields.keys():
        if _names_media(fields[name]):
            raise BadRequest(
                "A content part has a `uuid`: engines remember media for all tenants; send the media alone.",
                param=name,
                code="unsupported_value",
            )


def _names_media(value: Any) -> bool:
    """Whether media are named in one thing with content, a list of such, or a list of such lists (a
    batch)."""
    for each in value if isinstance(value, list) else (value,):
        if isinstance(each, dict):
            content = each.get("content")
            parts = content if isinstance(content, list) else ()
            if any(isinstance(part, dict) and part.get("uuid") is not None for part in parts):
                return True
        elif isinstance(each, list) and _names_media(each):
            return True
    return False


def convert(fields: Mapping[str, Any], kind: type[T]) -> T:
    """Convert ``fields`` to ``kind``. Raises: BadRequest: msgspec's message, with its path as ``param``."""
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise _bad_field(str(error)) from error


def _bad_field(message: str) -> BadRequest:
    """Reads msgspec's message, such as ``Expected `int`, got `str` - at `$.max_tokens```. If a field is
    missing, its name comes before the path."""
    what, _, path = message.partition(" - at `$")
    param = path.rstrip("`").lstrip(".") or None
    if what.startswith("Object missing required field"):
        missing = what.split("`")[1]
        param = f"{param}.{missing}" if param else missing
        return BadRequest(f"Missing required field `{param}`.", param=param, code="missing_field")
    return BadRequest(
        f"Invalid value for `{param}`: {in_json_words(what)}.", param=param, code="invalid_value"
    )
