"""The images of a conversation: where they are in a request, and the request with others in their place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serve_app.errors import BadRequest

IMAGE = "image_url"
TYPES = (IMAGE, "input_image", None)


@dataclass(frozen=True, slots=True)
class ImagePart:
    """``message`` and ``part`` are positions."""

    message: int
    part: int
    url: str

    @property
    def param(self) -> str:
        return f"messages[{self.message}].content[{self.part}].image_url.url"

    @property
    def is_held(self) -> bool:
        """Whether the request itself holds the image. vLLM reads the scheme in either case."""
        return self.url[:5].lower() == "data:"

    @property
    def is_remote(self) -> bool:
        return self.url[:4].lower() == "http"


def images_of(fields: Mapping[str, Any], most: int) -> list[ImagePart]:
    """All images that vLLM would find. Raises: BadRequest: there are more than ``most``."""
    found: list[ImagePart] = []
    messages = fields.get("messages")
    for number, message in enumerate(messages if isinstance(messages, list) else ()):
        content = message.get("content") if isinstance(message, dict) else None
        for place, part in enumerate(content if isinstance(content, list) else ()):
            url = _url(part)
            if url is not None:
                found.append(ImagePart(number, place, url))
    if len(found) > most:
        raise BadRequest(
            f"The request has {len(found)} images; at most {most} (media.max_images).",
            param="messages",
            code="too_many_images",
        )
    return found


def with_images(fields: Mapping[str, Any], urls: Mapping[ImagePart, str]) -> dict[str, Any]:
    """The request with other URLs; what is not changed is shared with ``fields``."""
    messages = list(fields["messages"])
    for image, url in urls.items():
        message = dict(messages[image.message])
        content = list(message["content"])
        content[image.part] = _with_url(content[image.part], url)
        message["content"] = content
        messages[image.message] = message
    return {**fields, "messages": messages}


def _url(part: Any) -> str | None:
    """vLLM takes an image, too, from a part without a type, with the Responses API's type, and with a
    ``uuid`` whatever the type."""
    if not isinstance(part, dict) or (part.get("type") not in TYPES and part.get("uuid") is None):
        return None
    url = _holder(part).get("url")
    return url if isinstance(url, str) else None


def _with_url(part: Mapping[str, Any], url: str) -> dict[str, Any]:
    """The part's form stays: of ``input_image`` vLLM takes no object."""
    if part.get("type") == IMAGE or not isinstance(part[IMAGE], str):
        return {**part, IMAGE: {**_holder(part), "url": url}}
    return {**part, IMAGE: url}


def _holder(part: Mapping[str, Any]) -> dict[str, Any]:
    """vLLM takes the URL itself, too."""
    held = part.get(IMAGE)
    if isinstance(held, str):
        return {"url": held}
    return held if isinstance(held, dict) else {}
