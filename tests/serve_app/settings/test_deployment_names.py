"""What Serve calls the deployments of engines."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.errors import SettingsError
from serve_app.settings import parse_args

ENGINE = {"accelerator": "gpu"}


def parsed(*models: dict[str, Any]) -> None:
    parse_args({"models": list(models)}, source="test")


def test_two_models_whose_engines_would_have_one_name_are_refused() -> None:
    """Serve would call the second one's ``…_1``, and a new config would replace the wrong one."""
    dotted, underlined = ({"id": name, "source": "org/m", "engine": ENGINE} for name in ("m-1.5", "m-1_5"))
    with pytest.raises(SettingsError, match=r"'m-1\.5' and 'm-1_5': .* called 'Engine:m-1_5'"):
        parsed(dotted, underlined)
    elsewhere = {"id": "m-1_5", "upstreams": [{"name": "vendor", "url": "https://vendor.example/v1"}]}
    parsed(dotted, elsewhere)  # it has no engine
