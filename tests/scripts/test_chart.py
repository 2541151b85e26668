"""The Helm chart around a manifest, as Helm renders it."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.kubernetes_clients import CHART, HELM, ROOT, needs_helm

from deployments.cli.main import main
from serve_app.version import VERSION

VALUES = (CHART / "values.yaml").read_text(encoding="utf-8")
FILE = "files/manifest.yaml"
KEEP = {"helm.sh/resource-policy": "keep"}
EXAMPLES = "\n".join(re.findall(r"^#  ([\w-]+: \{.*\})$", VALUES, flags=re.MULTILINE))
POD = r"RayService/chat/spec/rayClusterConfig/(?:workerGroupSpecs/)?([\w-]+)/template/spec"
GATEWAYS, ENGINES = {"front", "files"}, {"headGroupSpec", "engine-qwen3-8b"}

Json = dict[str, Any]

CHANGES: dict[str, tuple[Any, str, set[str]]] = {
    "images.gateway": ("here/g:1", rf"{POD}/(?:initC|c)ontainers/[\w-]+/image", GATEWAYS),
    "images.engine": ("here/e:1", rf"{POD}/(?:initC|c)ontainers/[\w-]+/image", ENGINES),
    "imagePullSecrets": ([{"name": "registry"}], rf"{POD}/imagePullSecrets/.*", GATEWAYS | ENGINES),
    "nodeSelector": ({"pool": "gpu"}, rf"{POD}/nodeSelector/pool", GATEWAYS | ENGINES),
    "storageClass": (
        "fast",
        r"(?:PersistentVolumeClaim/chat-|RayService/chat/spec/rayClusterConfig/)(\w+)/.*storageClassName",
        {"weights", "compiled", "state", "gcsFaultToleranceOptions"},
    ),
    "claims": (
        {"weights": "500Gi"},
        r"PersistentVolumeClaim/chat-(\w+)/spec/resources/requests/storage",
        {"weights"},
    ),
    "groups": (
        yaml.safe_load(EXAMPLES),
        r"(?:RayService/.*/workerGroupSpecs|PodDisruptionBudget)/(?:chat-)?([\w-]+)/.*",
        {"front", "engine-qwen3-8b"},
    ),
}
"""A value, what it is set to, and the fields that it changes: a pattern of these with one name in it, and all
that this name is."""


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chart") / "chart"
    shutil.copytree(CHART, folder, ignore=shutil.ignore_patterns("files"))
    config = str(ROOT / "config" / "gpu-8b.yaml")
    with contextlib.redirect_stdout(io.StringIO()) as text:
        assert main(["manifest", config, "--name", "chat", "--device", "H100", "--offline"]) == 0
    (folder / FILE).parent.mkdir()
    (folder / FILE).write_text(text.getvalue(), encoding="utf-8")
    return folder


def helm(*arguments: str | Path, values: Json | None = None) -> subprocess.CompletedProcess[str]:
    command = [str(HELM), *map(str, arguments), "--values", "-"]
    given = yaml.safe_dump(values or {})
    return subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False)


def rendered(chart: Path, values: Json | None = None) -> list[Json]:
    done = helm("template", "chat", chart, "--namespace", "llm", values=values)
    assert (done.returncode, done.stderr) == (0, "")
    return by_kind_and_name(yaml.safe_load_all(done.stdout))


def by_kind_and_name(objects: Iterator[Json]) -> list[Json]:
    return sorted(objects, key=lambda each: (each["kind"], each["metadata"]["name"]))


def fields(objects: list[Json]) -> dict[str, Any]:
    """Every field by its path, in which items of a list have their names."""

    def within(path: str, value: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(value, list):
            value = {_name_of(each, str(number)): each for number, each in enumerate(value)}
        if not isinstance(value, dict):
            yield path, value
            return
        for name, each in value.items():
            yield from within(f"{path}/{name}", each)

    roots = {f"{each['kind']}/{each['metadata']['name']}": each for each in objects}
    return {path: value for root, each in roots.items() for path, value in within(root, each)}


def _name_of(item: Any, otherwise: str) -> str:
    known = item if isinstance(item, dict) else {}
    return str(known.get("groupName") or known.get("name") or otherwise)


def changed(chart: Path, values: Json) -> dict[str, Any]:
    before, after = fields(rendered(chart)), fields(rendered(chart, values))
    assert before.keys() <= after.keys()
    return {path: value for path, value in after.items() if before.get(path) != value}


def nested(path: str, value: Any) -> Json:
    for name in reversed(path.split(".")):
        value = {name: value}
    assert isinstance(value, dict)
    return value


def test_the_chart_has_the_version_of_the_application() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert about["version"] == VERSION
    assert about["apiVersion"] == "v2", "Helm 3's"
    assert (about["name"], about["type"]) == ("promptly", "application")


def test_the_values_say_how_the_file_that_the_template_reads_is_made() -> None:
    assert f"> config/chart/{FILE}" in VALUES


@needs_helm
def test_helm_finds_nothing_wrong_with_the_chart(chart: Path) -> None:
    done = helm("lint", "--strict", chart)
    assert done.returncode == 0, done.stdout
    assert "1 chart(s) linted, 0 chart(s) failed" in done.stdout
    assert "[WARNING]" not in done.stdout


@needs_helm
def test_without_its_file_the_chart_says_what_makes_it() -> None:
    done = helm("template", "chat", CHART)
    assert done.returncode != 0
    assert "make it with `promptly manifest`" in done.stderr


@needs_helm
def test_without_values_a_release_is_the_manifest_whose_claims_outlive_it(chart: Path) -> None:
    wanted = by_kind_and_name(yaml.safe_load_all((chart / FILE).read_text(encoding="utf-8")))
    for each in wanted:
        each["metadata"]["namespace"] = "llm"
        if each["kind"] == "PersistentVolumeClaim":
            each["metadata"]["annotations"] = KEEP
    assert rendered(chart) == wanted


def test_every_value_has_a_test() -> None:
    leaves = {
        f"{name}.{inner}" if inner else name
        for name, value in yaml.safe_load(VALUES).items()
        for inner in (value if isinstance(value, dict) and value else [""])
    }
    assert leaves == CHANGES.keys()


@needs_helm
@pytest.mark.parametrize("name", CHANGES)
def test_a_value_changes_what_it_names_and_nothing_else(chart: Path, name: str) -> None:
    value, pattern, wanted = CHANGES[name]
    found = {path: re.fullmatch(pattern, path) for path in changed(chart, nested(name, value))}
    assert [path for path, match in found.items() if match is None] == []
    assert {match[1] for match in found.values() if match} == wanted


@needs_helm
def test_groups_get_the_numbers_that_are_set_and_their_budgets_follow(chart: Path) -> None:
    """One pod with a budget of one could never be moved."""
    cluster = "RayService/chat/spec/rayClusterConfig/workerGroupSpecs"
    resources = f"{cluster}/front/template/spec/containers/ray-worker/resources"
    group = {"replicas": 3, "cpu": "9", "memory": "25Gi"}
    assert changed(chart, {"groups": {"front": group}}) == {
        **{f"{cluster}/front/{name}": 3 for name in ("replicas", "minReplicas", "maxReplicas")},
        f"{resources}/requests/cpu": "9",
        f"{resources}/requests/memory": "25Gi",
        f"{resources}/limits/memory": "25Gi",
        "PodDisruptionBudget/chat-front/spec/minAvailable": 2,
    }
    fewer = changed(chart, {"groups": {"front": {"replicas": 1}}})
    assert fewer["PodDisruptionBudget/chat-front/spec/minAvailable"] == 0
