"""Pages of items, as OpenAI's lists have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from serve_app.errors import BadRequest

DEFAULT_LIMIT = 20
MAX_LIMIT = 100


@dataclass(frozen=True, slots=True)
class Page:
    """``after`` is the id of the last item of the page before."""

    limit: int
    newest_first: bool
    after: str | None

    def of(self, items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The list object. Raises: BadRequest: there is no item ``after``."""
        ordered = list(reversed(items)) if self.newest_first else list(items)
        begin = 0
        if self.after is not None:
            places = [place for place, item in enumerate(ordered) if item.get("id") == self.after]
            if not places:
                raise BadRequest(
                    f"`after` is {self.after!r}: no such item.", param="after", code="invalid_value"
                )
            begin = places[0] + 1
        shown = ordered[begin : begin + self.limit]
        return {
            "object": "list",
            "data": shown,
            "first_id": shown[0].get("id") if shown else None,
            "last_id": shown[-1].get("id") if shown else None,
            "has_more": begin + self.limit < len(ordered),
        }


def query_of(query: bytes) -> dict[str, str]:
    """The last value of each parameter. Raises: BadRequest: it is no UTF-8."""
    try:
        return {name: values[-1] for name, values in parse_qs(query.decode(), keep_blank_values=True).items()}
    except ValueError as error:
        raise BadRequest("The query is not valid.", code="invalid_value") from error


def page_of(query: Mapping[str, str]) -> Page:
    """Raises: BadRequest: ``limit`` or ``order`` is wrong."""
    limit = query.get("limit", str(DEFAULT_LIMIT))
    if not (limit.isascii() and limit.isdecimal() and len(limit) <= 3 and 1 <= int(limit) <= MAX_LIMIT):
        raise BadRequest(f"`limit` must be 1 to {MAX_LIMIT}.", param="limit", code="invalid_value")
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise BadRequest("`order` must be `asc` or `desc`.", param="order", code="invalid_value")
    return Page(int(limit), order == "desc", query.get("after"))
