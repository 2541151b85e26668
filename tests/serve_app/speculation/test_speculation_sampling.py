"""What vLLM cannot do to drafted tokens is refused by its name."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.errors import BadRequest
from serve_app.speculation.sampling import refuse_unsupported


@pytest.mark.parametrize("fields", [{"min_p": 0.05}, {"min_p": 1}, {"logit_bias": {"5": 1}}], ids=repr)
def test_it_is_named_and_so_is_the_setting(fields: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match=r"engine\.speculation") as caught:
        refuse_unsupported(fields)
    assert (caught.value.param, caught.value.code) == (next(iter(fields)), "unsupported_with_speculation")


@pytest.mark.parametrize(
    "fields", [{}, {"min_p": 0}, {"min_p": 1e-6}, {"min_p": None, "logit_bias": {}}], ids=repr
)
def test_what_changes_nothing_is_let_through(fields: dict[str, Any]) -> None:
    refuse_unsupported(fields)


@pytest.mark.parametrize("fields", [{"min_p": "much"}, {"min_p": [1]}], ids=repr)
def test_what_is_no_number_is_the_engines_to_refuse(fields: dict[str, Any]) -> None:
    refuse_unsupported(fields)
