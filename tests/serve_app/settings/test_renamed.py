"""Old names of settings work until a release says otherwise, with a warning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from serve_app.errors import SettingsError
from serve_app.settings.load import parse_args, read_config
from serve_app.settings.renamed import EACH, RENAMED, Renamed, modern
from serve_app.version import VERSION

TABLE = {
    "gateway.show_console": Renamed("gateway.console", "9.9"),
    "max_prompts": Renamed("limits.max_prompts", "9.9"),
    "models[].engine.max_len": Renamed("models[].engine.max_model_len", "9.9"),
}


def old(**more: Any) -> dict[str, Any]:
    model = {"id": "a", "source": "b", "engine": {"max_len": 2048}}
    return {
        "models": [model, {"id": "c", "source": "d", "engine": {}}],
        "gateway": {"show_console": False},
        **more,
    }


def test_settings_by_their_old_names_are_those_of_the_new_ones() -> None:
    settings = parse_args(old(), source="a.yaml", renamed=TABLE)
    assert settings.gateway.console is False
    assert settings.models[0].engine is not None
    assert settings.models[0].engine.max_model_len == 2048


def test_each_old_name_is_a_warning_with_its_place_and_its_end() -> None:
    _, warnings = modern(old(), source="a.yaml", table=TABLE)
    assert warnings == [
        "gateway.show_console is now gateway.console; the old name works until 9.9",
        "models[0].engine.max_len is now models[0].engine.max_model_len; the old name works until 9.9",
    ]


def test_a_setting_can_move_into_a_section_that_is_not_there_yet() -> None:
    args, _ = modern({"max_prompts": 3}, source="a.yaml", table=TABLE)
    assert args == {"limits": {"max_prompts": 3}}


def test_what_was_given_stays_as_it_was() -> None:
    given = old()
    modern(given, source="a.yaml", table=TABLE)
    assert given == old()


def test_both_names_at_once_are_refused() -> None:
    with pytest.raises(
        SettingsError, match=r"a\.yaml: gateway\.show_console: the old name of gateway\.console"
    ):
        modern(old(gateway={"show_console": True, "console": True}), source="a.yaml", table=TABLE)


@pytest.mark.parametrize("wrong", [{"models": "a"}, {"models": [1]}, {"gateway": [1]}, {"gateway": None}])
def test_values_of_a_wrong_type_are_left_to_the_settings(wrong: dict[str, Any]) -> None:
    assert modern(wrong, source="a.yaml", table=TABLE) == (wrong, [])


def test_a_file_s_old_names_are_listed(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    args = "{gateway: {show_console: false}, models: [{id: a, source: b, engine: {}}]}"
    file.write_text(f"http_options: {{host: 127.0.0.1}}\napplications: [{{args: {args}}}]", encoding="utf-8")
    found = read_config(file, TABLE)
    assert found.applications[0].gateway.console is False
    (line,) = found.old_names
    assert line.startswith("gateway.show_console is now gateway.console")


def test_the_shipped_table_keeps_its_own_rules() -> None:
    """No entry is past its end, and both paths go through the same lists."""
    for path, new in RENAMED.items():
        assert tuple(map(int, new.gone_in.split("."))) > tuple(map(int, VERSION.split(".")[:2])), path
        assert path.rpartition(EACH)[0] == new.to.rpartition(EACH)[0], path
