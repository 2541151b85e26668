"""docs/settings.md is what the settings classes say."""

import pytest
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
        "ttft_objective_s",
        "health_period_s",
        "max_share",
    ):
        assert f"| `{key}` |" in text


@pytest.mark.parametrize(
    "path",
    ["args", "models[]", "models[].engine.speculation", "models[].upstreams[]", "models[].hedge", "limits"],
)
def test_every_class_has_a_section_named_by_its_path(path: str) -> None:
    assert page().splitlines().count(f"## `{path}`") == 1


def test_no_line_is_indented_which_markdown_would_show_as_code() -> None:
    assert [line for line in page().splitlines() if line.startswith(" ")] == []
