"""``data:`` URLs that hold an image."""

from __future__ import annotations

import base64
import binascii

from serve_app.errors import BadRequest
from serve_app.media.images import image_head
from serve_app.settings.media import MediaSettings

DATA = "data:"


def data_url(media_type: str, data: bytes) -> str:
    return f"{DATA}{media_type};base64,{base64.b64encode(data).decode()}"


def check_data_url(url: str, param: str, limits: MediaSettings) -> None:
    """Raises: BadRequest: it is not well formed, no image, or too large."""
    head, comma, content = url[len(DATA) :].partition(",")
    if not comma or not head.endswith(";base64"):
        raise BadRequest(
            f"`{param}` is no `data:` URL in base64, such as `data:image/png;base64,…`.",
            param=param,
            code="invalid_image",
        )
    if len(content) > limits.max_image_bytes // 3 * 4 + 4:
        raise too_large(param, limits)
    try:
        data = base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRequest(f"`{param}` is not base64: {error}.", param=param, code="invalid_image") from error
    check_image(data, param, limits)


def check_image(data: bytes, param: str, limits: MediaSettings) -> str:
    """The media type of an image, by its own bytes. Raises: BadRequest: it is none, or too large."""
    if len(data) > limits.max_image_bytes:
        raise too_large(param, limits)
    head = image_head(data)
    if head is None:
        raise BadRequest(f"`{param}` is no PNG, JPEG, WebP or GIF image.", param=param, code="invalid_image")
    if head.pixels > limits.max_image_pixels:
        raise BadRequest(
            f"`{param}` has {head.width} × {head.height} pixels; at most {limits.max_image_pixels} in all "
            "(media.max_image_pixels).",
            param=param,
            code="image_too_large",
        )
    return head.media_type


def too_large(param: str, limits: MediaSettings) -> BadRequest:
    """The error of one image with too many bytes."""
    return BadRequest(
        f"`{param}` is larger than {limits.max_image_bytes} bytes (media.max_image_bytes).",
        param=param,
        code="image_too_large",
    )
