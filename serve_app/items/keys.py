"""The key of an item: its tenant, the weights that answer, and everything that shapes the answer."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from typing import Any

from serve_app.items.shape import Shape, Split, encoded

REMOTE = re.compile(rb'"(?:url|image_url|audio_url|video_url)":"(?!data:)')
"""Media by address, in JSON without spaces: what lies there can change. Inside a text a quotation mark is
written ``\\"``, so no text looks like this."""


def item_keys(
    shape: Shape,
    split: Split,
    *,
    tenant: str,
    model: str,
    fingerprint: str,
    by: Mapping[str, Any],
) -> tuple[bytes, ...] | None:
    """A digest for each item. ``by``: fields that identify a tenant's own users, whose items are kept apart.
    ``None``: the answer cannot be kept."""
    if any(_is_remote(item, is_image="*image" in split.shared) for item in split.items):
        return None
    place = hashlib.sha256(encoded([shape.family, tenant, model, fingerprint, split.shared, by])).digest()
    return tuple(hashlib.sha256(place + item).digest() for item in split.items)


def users_of(fields: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """The values of the fields ``names``."""
    return {name: fields.get(name) for name in names}


def _is_remote(item: bytes, *, is_image: bool) -> bool:
    if is_image:
        return not item.startswith(b'"data:')
    return item[:1] in b"[{" and REMOTE.search(item) is not None
