"""The names of the nodes for the parts around the engines."""

from __future__ import annotations

import pytest

from serve_app.errors import SettingsError
from serve_app.settings import parse_args
from serve_app.settings.nodes import NodeSettings

MODEL = {"id": "m", "upstreams": [{"name": "u", "url": "http://127.0.0.1:9/v1"}]}


def nodes(**names: str) -> NodeSettings:
    return parse_args({"models": [MODEL], "nodes": names}, source="a.yaml").nodes


def test_one_name_for_gateways_and_owners_of_files_is_refused() -> None:
    """Nodes for gateways are several, and the files of an owner lie on one."""
    with pytest.raises(SettingsError) as caught:
        nodes(front="mine", files="mine")
    (line,) = str(caught.value).splitlines()
    assert line.startswith("a.yaml: nodes = ")
    assert "`front` and `files` are both 'mine'" in line
    assert "give `files` a name of its own" in line


def test_each_name_may_be_left_out_or_differ() -> None:
    assert (nodes().front, nodes().files) == (None, None)
    assert nodes(front="mine").files is None
    assert nodes(files="mine").front is None
    assert nodes(front="gateways", files="mine").files == "mine"
