"""A request's prompt as text, and hashes of its prefixes, which show what two prompts share.

The text stands in for the tokens that an engine will see. It has the order of chat templates (tools, then the
messages), so that prompts which share a prefix here share one there.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from itertools import islice
from typing import Any

import msgspec

from serve_app.openai.requests import ChatRequest, Message, ParsedRequest
from serve_app.routing.depths import depths

BYTES_PER_TOKEN = 4
"""OpenAI's rule of thumb for English text, https://platform.openai.com/tokenizer; only an estimate."""

BLOCK_BYTES = 512
"""128 tokens, eight of vLLM's blocks: smaller ones cost memory and time, larger ones lose a longer tail."""

TOKENS_PER_BLOCK = BLOCK_BYTES / BYTES_PER_TOKEN

NAME_BYTES = 8
"""Bytes of a prefix's name."""

BEGINNING_BYTES = 8 * BLOCK_BYTES
"""What is taken to be common to prompts that share more than a greeting: 1,024 tokens, mostly instructions
and tools."""

IMAGE_TOKENS = 576
"""A 336 × 336 image in patches of 14 (LLaVA 1.5); models differ by some factor both ways. No picture,
sound or film counts less."""

CHARACTERS_PER_DATA_TOKEN = 340
"""Of data in base64: 256 bytes. A photograph of a million pixels has some 300,000 bytes as JPEG, and 1,276
tokens where each is of 28 × 28 pixels (Qwen2.5-VL); speech at 16 kHz has 32,000 bytes a second and 25 tokens
(Qwen2-Audio). Data that is only named, by a URL, counts as the least."""

PICTURE_END = 4096
"""Characters of each end of a picture's data that name it: the head of the file and its last rows."""

WHOLE_DATA = 65_536
"""Characters of data that are read whole for its mark: 0.1 ms."""

DATA_URL = re.compile(rb'"data:[^"]*"')

PICTURES = re.compile(
    rb'"(?:image|image_url|url)"\s*:\s*"data:[^"]*"|"images"\s*:\s*\[\s*(?:"data:[^"]*"[\s,]*)+\]'
)
"""Where a body that is not read any further has pictures: elsewhere such a text is read as text."""

CHARACTERS_PER_EMBEDDED_TOKEN = 1365
"""In base64: a row of 512 numbers of 16 bits. Few models that generate have a smaller hidden size."""

MOST_IMAGE_TOKENS = 16_384
"""Of one picture: vLLM's models scale larger ones down (Qwen2.5-VL to 12.8 million pixels by default)."""

MOST_PICTURES = 1000
"""Of a relayed body are told from text: each takes some microseconds."""

TEXT_PARTS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
"""The parts of a message that vLLM's chat templates get as text, and the field that holds it
(``MM_PARSER_MAP`` in vLLM's ``chat_utils.py``)."""

FIRST, LAST = ("tools", "documents"), ("chat_template_kwargs",)
"""Fields of a chat that templates may write before the messages, and such as mostly change the end."""

WRITTEN = frozenset({"role", "content"})
"""Fields of a message that are in its text already."""


def prompt_text(request: ParsedRequest) -> bytes:
    """The prompt as bytes, ``BYTES_PER_TOKEN`` for each estimated token. Never raises: the engine reports
    what is wrong with a prompt."""
    generation = request.generation
    if isinstance(generation, ChatRequest):
        fields = request.fields
        texts = [_json(value) for name in FIRST if (value := fields.get(name))]
        for message, given in zip(generation.messages, fields["messages"], strict=True):
            texts += _message(message)
            texts += _beside(given)
        texts += [_json(value) for name in LAST if (value := fields.get(name))]
        return _utf8("".join(texts))
    embeds = generation.prompt_embeds
    given = [] if embeds is None else embeds if isinstance(embeds, list) else [embeds]
    return _completion_prompt(generation.prompt) + _utf8("".join(map(_embedded_prompt, given)))


def estimated_tokens(request: ParsedRequest) -> float:
    return len(prompt_text(request)) / BYTES_PER_TOKEN


def relayed_tokens(body: bytes) -> float:
    """The same of a body that is not read any further. A picture that it holds counts as a picture."""
    found = islice(PICTURES.finditer(body), MOST_PICTURES) if b'"data:' in body else ()
    pictures = [len(data) for each in found for data in DATA_URL.findall(each[0])]
    return (len(body) - sum(pictures)) / BYTES_PER_TOKEN + sum(map(_picture_tokens, pictures))


def _data_tokens(characters: int) -> int:
    return max(IMAGE_TOKENS, characters // CHARACTERS_PER_DATA_TOKEN)


def _picture_tokens(characters: int) -> int:
    return min(MOST_IMAGE_TOKENS, _data_tokens(characters))


def blocks_of(text: bytes, model: str, salt: str | None = None) -> tuple[int, ...]:
    """Chained hashes of the full blocks. Equal hashes mean equal text up to there, read by the same weights
    (``model`` is the name of the model or adapter: an adapter's cached prefixes are useless to another one).
    ``salt`` is the salt of the engine's prefix cache: prompts under different salts share nothing.

    Uses Python's own hash: it is seeded per process, so that a client cannot craft two texts that collide.
    Its values must therefore not leave the process.
    """
    blocks, chain = [], hash((model, salt))
    for end in range(BLOCK_BYTES, len(text) + 1, BLOCK_BYTES):
        chain = hash((chain, text[end - BLOCK_BYTES : end]))
        blocks.append(chain)
    return tuple(blocks)


def prefixes_of(text: bytes, model: str, salt: str | None = None) -> tuple[bytes, ...]:
    """Names of the text's prefixes, shortest first, at the ``depths`` of its full blocks. All gateways make
    them alike; equal names mean what equal hashes of ``blocks_of`` mean. They are short: who crafts two texts
    of one name gets a worse route for them, and no more.

    A tenant's salt is a secret of the gateways, so a name tells nothing of the text. Without a salt
    (``gateway.share_prefixes``) a guessed text can be confirmed by whoever sees the name.
    """
    hashed, begin, names = _hashed(model, salt, NAME_BYTES), 0, []
    for blocks in depths(len(text) // BLOCK_BYTES):
        end = blocks * BLOCK_BYTES
        hashed.update(text[begin:end])
        names.append(hashed.digest())
        begin = end
    return tuple(names)


def beginning_of(text: bytes, model: str, salt: str | None = None) -> str:
    """A name of the prompt's beginning that every gateway makes alike. ``salt``: as of ``blocks_of``."""
    named = _hashed(model, salt, 16)
    named.update(text[:BEGINNING_BYTES])
    return named.hexdigest()


def picture_name(request: ParsedRequest, salt: str | None) -> str | None:
    """A name for the first picture of a conversation, the same at every gateway; ``None`` if it has none. It
    is made of the picture's length and both ends, as reading megabytes would take milliseconds: two pictures
    of one name are only routed alike. ``salt``: of the engine's prefix cache."""
    generation = request.generation
    if not isinstance(generation, ChatRequest):
        return None
    contents = (message.content for message in generation.messages if isinstance(message.content, list))
    urls = (_image_url(part) for content in contents for part in content)
    url = next((url for url in urls if url is not None), None)
    if url is None:
        return None
    return f"picture\0{_name_by_ends(_image_data(url) or url, salt)}"


def _name_by_ends(data: str, salt: str | None = None) -> str:
    """The name has 32 characters."""
    ends = f"{salt or ''}\0{len(data)}\0{data[:PICTURE_END]}\0{data[-PICTURE_END:]}"
    return blake2b(_utf8(ends), digest_size=16).hexdigest()


def _hashed(model: str, salt: str | None, size: int) -> blake2b:
    return blake2b(_utf8(f"{model}\0{salt or ''}\0"), digest_size=size)


def _message(message: Message) -> Iterator[str]:
    yield f"\n{message.role}\n"
    if isinstance(message.content, str):
        yield message.content
    elif message.content:
        yield from map(_part, message.content)


def _beside(given: Mapping[str, Any]) -> Iterator[str]:
    """What a message has beside its content: calls of tools with their arguments, reasoning."""
    for name, value in given.items():
        if value and name not in WRITTEN:
            yield value if isinstance(value, str) else _json(value)


def _part(part: dict[str, Any]) -> str:
    """Text unchanged; an image or other data as a mark with the length of its estimated tokens, the same at
    every gateway. Data longer than ``WHOLE_DATA`` with equal ends and length counts as equal."""
    kind = part.get("type")
    field = TEXT_PARTS.get(kind) if isinstance(kind, str) else None
    text = None if field is None else part.get(field)
    if isinstance(text, str):
        if part.get("uuid") is None:
            return text
        return text + _mark(_json(part), IMAGE_TOKENS)  # vLLM looks for a picture first
    picture = _held(part)
    if picture:
        return _mark(picture, _picture_tokens(len(picture)))
    data = _json(part)
    return _mark(data, _data_tokens(len(data)))


def _embedded_prompt(embeds: Any) -> str:
    """vLLM takes a tensor in base64, with one row for each token."""
    data = embeds if isinstance(embeds, str) else _json(embeds)
    return _mark(data, max(1, len(data) // CHARACTERS_PER_EMBEDDED_TOKEN))


def _mark(data: str, tokens: int) -> str:
    mark = _name_by_ends(data) if len(data) > WHOLE_DATA else blake2b(_utf8(data), digest_size=16).hexdigest()
    size = tokens * BYTES_PER_TOKEN
    return (mark * (size // len(mark) + 1))[:size]


def _held(part: dict[str, Any]) -> str | None:
    url = _image_url(part)
    return None if url is None else _image_data(url)


def _image_url(part: dict[str, Any]) -> str | None:
    """vLLM takes the URL itself, too."""
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    return url if isinstance(url, str) else None


def _image_data(url: str) -> str | None:
    """The data of an image that the request itself holds: the same picture is the same, whatever is said of
    it. vLLM reads the scheme in either case."""
    return url.partition(",")[2] if url[:5].lower() == "data:" else None


def _completion_prompt(prompt: str | list[Any] | None) -> bytes:
    """Text, token ids, or a batch of either, one after the other."""
    if not isinstance(prompt, list):
        return _one_prompt(prompt)
    is_batch = bool(prompt) and isinstance(prompt[0], list | str)
    return b"\0".join(map(_one_prompt, prompt)) if is_batch else _one_prompt(prompt)


def _one_prompt(prompt: Any) -> bytes:
    if isinstance(prompt, str):
        return _utf8(prompt)
    try:
        return array("I", prompt).tobytes()  # token ids: four bytes each
    except (TypeError, OverflowError):
        return _utf8(_json(prompt))


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:  # deeper on the stack here than where the value was decoded
        return ""


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
