"""Pages of items: what may be asked for."""

from __future__ import annotations

import pytest

from serve_app.errors import BadRequest
from serve_app.stored_responses.paging import page_of


@pytest.mark.parametrize("limit", ["0", "101", "-1", "x", "", "000000001999999", "0" * 5000 + "1", "²"])
def test_a_limit_out_of_bounds_is_refused(limit: str) -> None:
    with pytest.raises(BadRequest, match="`limit` must be 1 to 100"):
        page_of({"limit": limit})


def test_a_limit_within_bounds_is_taken() -> None:
    assert [page_of({"limit": limit}).limit for limit in ("1", "100")] == [1, 100]
