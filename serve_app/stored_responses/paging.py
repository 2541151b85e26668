"""Pages of items, as OpenAI's lists have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs

from serve_app.errors import BadRequest
from serve_app.stored_responses.values import Part

DEFAULT_LIMIT = 20
MAX_LIMIT = 100


def page(items: Sequence[Mapping[str, Any]], part: Part) -> dict[str, Any]:
    """The list object of a part of these items, whose ids differ. Raises: BadRequest: there is no item
    ``after``."""
    ordered = list(reversed(items)) if part.newest_first else list(items)
    begin = 0
    if part.after is not None:
        places = [place for place, item in enumerate(ordered) if item.get("id") == part.after]
        if not places:
            raise no_such_item(part)
        begin = places[0] + 1
    shown = ordered[begin : begin + part.limit]
    return listing(shown, has_more=begin + part.limit < len(ordered))


def listing(shown: Sequence[Mapping[str, Any]], *, has_more: bool) -> dict[str, Any]:
    return {
        "object": "list",
        "data": shown,
        "first_id": shown[0].get("id") if shown else None,
        "last_id": shown[-1].get("id") if shown else None,
        "has_more": has_more,
    }


def no_such_item(part: Part) -> BadRequest:
    return BadRequest(f"`after` is {part.after!r}: no such item.", param="after", code="invalid_value")


def query_of(query: bytes) -> dict[str, str]:
    """The last value of each parameter. Raises: BadRequest: it is no UTF-8."""
    try:
        return {name: values[-1] for name, values in parse_qs(query.decode(), keep_blank_values=True).items()}
    except ValueError as error:
        raise BadRequest("The query is not valid.", code="invalid_value") from error


def page_of(query: Mapping[str, str]) -> Part:
    """Raises: BadRequest: ``limit`` or ``order`` is wrong."""
    limit = query.get("limit", str(DEFAULT_LIMIT))
    if not (limit.isascii() and limit.isdecimal() and len(limit) <= 3 and 1 <= int(limit) <= MAX_LIMIT):
        raise BadRequest(f"`limit` must be 1 to {MAX_LIMIT}.", param="limit", code="invalid_value")
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise BadRequest("`order` must be `asc` or `desc`.", param="order", code="invalid_value")
    return Part(int(limit), order == "desc", query.get("after"))
