"""Whether one tenant's answers are drafted from for another."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.errors import SettingsError
from serve_app.settings import Settings, parse_args
from serve_app.settings.engine import FORMER_ANSWERS

KEYS = {"keys_env": "KEYS"}


def settings(auth: Any, method: str = "suffix", **speculation: Any) -> Settings:
    drafting = {"method": method, "num_speculative_tokens": 4, **speculation}
    engine = {"accelerator": "cpu", "speculation": drafting}
    return parse_args({"models": [{"id": "m", "source": "s", "engine": engine}], "auth": auth}, source="test")


def options(found: Settings) -> dict[str, Any]:
    (model,) = found.engine_models
    assert model.engine is not None
    assert model.engine.speculation is not None
    return model.engine.speculation.options or {}


def test_with_keys_every_request_drafts_for_itself() -> None:
    assert options(settings(KEYS)) == {FORMER_ANSWERS: 0}
    assert options(settings(KEYS, options={"suffix_decoding_max_spec_factor": 2.0})) == {
        "suffix_decoding_max_spec_factor": 2.0,
        FORMER_ANSWERS: 0,
    }


@pytest.mark.parametrize("auth", ["none", "loopback"])
def test_without_keys_there_is_one_tenant_and_former_answers_serve(auth: str) -> None:
    assert options(settings(auth)) == {}
    assert options(settings(auth, options={FORMER_ANSWERS: 10})) == {FORMER_ANSWERS: 10}


def test_tenants_may_share_drafts_on_purpose() -> None:
    assert options(settings(KEYS, share_drafts=True)) == {}
    assert options(settings(KEYS, share_drafts=True, options={FORMER_ANSWERS: 10})) == {FORMER_ANSWERS: 10}


def test_an_option_that_would_share_them_unsaid_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"'m'.*share_drafts: true"):
        settings(KEYS, options={FORMER_ANSWERS: 10})
    assert options(settings(KEYS, options={FORMER_ANSWERS: 0})) == {FORMER_ANSWERS: 0}


def test_methods_that_never_share_stay_as_they_are() -> None:
    found = settings(KEYS, method="ngram")
    assert found.engine_models == found.models
    with pytest.raises(SettingsError, match="`share_drafts` is for method 'suffix'"):
        settings("loopback", method="ngram", share_drafts=True)
