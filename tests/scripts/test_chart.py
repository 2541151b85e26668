"""The Helm chart around a manifest. Only Helm can render it; these read its files."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from serve_app.version import VERSION

CHART = Path(__file__).parents[2] / "config" / "chart"
TEMPLATE = (CHART / "templates" / "manifest.yaml").read_text(encoding="utf-8")
VALUES = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
PAGE = (CHART.parents[1] / "docs" / "kubernetes.md").read_text(encoding="utf-8")


def paths(prefix: str) -> set[tuple[str, ...]]:
    """What the template reads of a variable: `$values.images.gateway` is `("images", "gateway")`."""
    return {tuple(each.split(".")) for each in re.findall(rf"{re.escape(prefix)}\.([\w.]+)", TEMPLATE)}


def test_the_chart_has_the_version_of_the_application() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["version"] == VERSION
    assert chart["apiVersion"] == "v2", "Helm 3's"
    assert (chart["name"], chart["type"]) == ("promptly", "application")


def test_every_value_that_the_template_reads_is_there() -> None:
    assert paths(".Values") == set(), "the template gives them a name first"
    for path in paths("$values"):
        found = VALUES
        for key in path:
            assert key in found, ".".join(path)
            found = found[key]


def test_every_value_that_is_there_is_read() -> None:
    read = paths("$values")
    leaves = {
        (name, *inner)
        for name, value in VALUES.items()
        for inner in ([(key,) for key in value] if isinstance(value, dict) and value else [()])
    }
    assert leaves == read


def test_the_examples_of_a_group_name_what_the_template_reads_of_it() -> None:
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    groups = yaml.safe_load("\n".join(re.findall(r"^#  ([\w-]+: \{.*\})$", text, flags=re.MULTILINE)))
    named = {key for group in groups.values() for key in group}
    assert {(key,) for key in named} == paths("$own")


def test_blocks_of_the_template_are_closed() -> None:
    """`ternary`, `with` and their kin are Helm's; a missing `end` is ours."""
    actions = re.findall(r"\{\{-?\s*(\w+)\b", TEMPLATE)
    opened = sum(each in {"if", "range", "with", "define", "block"} for each in actions)
    assert opened == actions.count("end") > 0


def test_the_template_reads_the_file_that_the_page_and_the_values_write() -> None:
    (file,) = re.findall(r'\.Files\.Get "([^"]+)"', TEMPLATE)
    written = f"> config/chart/{file}"
    assert written in PAGE
    assert written in (CHART / "values.yaml").read_text(encoding="utf-8")


def test_values_that_commands_set_are_values() -> None:
    keys = re.findall(r"--set ([\w.]+)=", PAGE)
    assert keys
    assert {tuple(each.split(".")) for each in keys} <= paths("$values")


def of_kind(kind: str) -> str:
    """What the template does with the objects of a kind."""
    start = TEMPLATE.index(f'eq $object.kind "{kind}"')
    following = TEMPLATE.find("eq $object.kind", start + 1)
    return TEMPLATE[start : following if following > 0 else None]


def test_an_uninstalled_release_leaves_its_claims() -> None:
    """Stored answers, accounts and a day's download of weights: Helm deletes what does not say `keep`."""
    assert '"helm.sh/resource-policy" "keep"' in of_kind("PersistentVolumeClaim")


def test_a_budget_follows_the_replicas_of_its_group() -> None:
    """One pod with a budget of one could never be moved."""
    assert "set $added" in of_kind("RayService")
    assert re.search(r'set \$object\.spec "minAvailable" .*\$more', of_kind("PodDisruptionBudget"))
