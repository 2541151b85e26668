"""docs/settings.md is what the settings classes say."""

from document_settings import TARGET, page


def test_the_settings_page_is_up_to_date() -> None:
    assert TARGET.read_text() == page(), "run `python scripts/document_settings.py`"


def test_every_setting_is_on_the_page() -> None:
    text = page()
    for key in (
        "max_model_len",
        "num_speculative_tokens",
        "keys_file",
        "lookup_budget_ms",
        "target_ongoing_requests",
    ):
        assert f"| `{key}` |" in text
