"""The salt of a request's prefix."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.errors import BadRequest
from serve_app.request.prefix_salt import PrefixSalts
from serve_app.request.tenant_marks import TenantMarks

MARKS = TenantMarks(b"s" * 32)
NAMED_MEDIA: dict[str, Any] = {
    "messages": [{"role": "user", "content": [{"type": "image_url", "uuid": "u", "image_url": None}]}]
}


def test_tenants_have_salts_of_their_own_unless_they_share() -> None:
    apart = PrefixSalts(MARKS, shared=False, has_keys=True)
    assert apart.salt("a", {}) != apart.salt("b", {})
    assert apart.salt("a", {"cache_salt": "mine"}) != apart.salt("a", {})
    assert PrefixSalts(MARKS, shared=True, has_keys=True).salt("a", {}) is None


@pytest.mark.parametrize(
    ("shared", "has_keys", "refused"), [(False, True, True), (False, False, False), (True, True, False)]
)
def test_media_with_names_are_refused_where_tenants_are_apart(
    shared: bool, has_keys: bool, refused: bool
) -> None:
    salts = PrefixSalts(MARKS, shared=shared, has_keys=has_keys)
    if refused:
        with pytest.raises(BadRequest):
            salts.salt("a", NAMED_MEDIA)
    else:
        salts.salt("a", NAMED_MEDIA)


@pytest.mark.parametrize("shared", [False, True])
def test_a_salt_that_vllm_would_refuse_is_refused_in_any_case(shared: bool) -> None:
    with pytest.raises(BadRequest):
        PrefixSalts(MARKS, shared=shared, has_keys=True).salt("a", {"cache_salt": ""})
