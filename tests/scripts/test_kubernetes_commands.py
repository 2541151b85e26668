"""The page on Kubernetes by the real kubectl and Helm, against a server that checks objects by schemas."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from support.documented import ROOT, commands
from support.kubernetes_clients import Workplace, needs_helm, needs_kubectl, workplace

PAGE = [each.text for each in commands() if each.page == "docs/kubernetes.md"]
CHART_BEGINS = PAGE.index("mkdir -p config/chart/files")
PLAIN, CHART = PAGE[:CHART_BEGINS], PAGE[CHART_BEGINS:]
SMALL, LARGE = ROOT / "config" / "gpu-8b.yaml", ROOT / "config" / "gpu-8x.yaml"
CLAIMS = {"chat-weights", "chat-compiled", "chat-state"}

pytestmark = needs_kubectl


def documents(place: Workplace, file: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((place.folder / file).read_text(encoding="utf-8")))


def within(part: Any, whole: Any) -> bool:
    """All that ``part`` says is so in ``whole``, to which the server has added fields."""
    if not isinstance(part, dict):
        return bool(part == whole)
    return isinstance(whole, dict) and all(within(each, whole.get(name)) for name, each in part.items())


def test_the_commands_make_all_objects_of_a_manifest_and_change_nothing_the_second_time(
    tmp_path: Path,
) -> None:
    with workplace(tmp_path, LARGE) as place:
        keys = place.folder / "config" / "keys.json"
        keys.write_text("[]")
        for command in PLAIN:
            said = place.run(command)
            for secret in re.findall(r"^# (kubectl .*)$", said, flags=re.MULTILINE):
                place.run(secret)
        assert "chat-env" in place.cluster.of_kind("Secret")
        wanted = documents(place, "chat.yaml")
        assert len(wanted) > 8
        for each in wanted:
            key = (each["kind"], "llm", each["metadata"]["name"])
            assert within(each, place.cluster.objects[key]), key
        before = len(place.cluster.changes)
        said = place.run(PLAIN[-1])
        assert len(place.cluster.changes) == before, said


def test_a_new_manifest_changes_the_service_and_the_config_that_proxies_read(tmp_path: Path) -> None:
    with workplace(tmp_path, SMALL) as place:
        for command in PLAIN:
            place.run(command)
        before = len(place.cluster.changes)
        config = place.folder / "config.yaml"
        document = yaml.safe_load(config.read_text())
        document["applications"][0]["args"]["cache"] = {"decision": "balanced"}
        config.write_text(yaml.safe_dump(document))
        place.run(next(each for each in PLAIN if each.startswith("promptly manifest")))
        place.run(PLAIN[-1])
        changed = [path.rsplit("/", 1)[-1] for path in place.cluster.changes[before:]]
        assert changed == ["chat-config", "chat"]
        assert "decision: balanced" in place.cluster.of_kind("RayService")["chat"]["spec"]["serveConfigV2"]


def test_a_cluster_without_prometheus_operator_needs_the_option_that_the_page_names(tmp_path: Path) -> None:
    with workplace(tmp_path, SMALL, without=["PodMonitor"]) as place:
        make = "promptly manifest config.yaml"
        assert "PodMonitor" in place.refused(f"{make} | kubectl apply -f -")
        place.run(f"{make} --no-pod-monitor | kubectl apply -f -")


def test_what_the_schemas_do_not_know_is_refused(tmp_path: Path) -> None:
    """Else the other tests would say little."""
    with workplace(tmp_path, SMALL) as place:
        make = "promptly manifest config.yaml"
        said = place.refused(f"{make} | sed s/startupProbe:/startProbe:/ | kubectl apply -f -")
        assert "'startProbe' was unexpected" in said
        said = place.refused(f"{make} --namespace nowhere | kubectl apply -f -")
        assert 'namespaces "nowhere" not found' in said


def install(place: Workplace) -> str:
    """The chart by the page's commands; the last of them."""
    place.run("kubectl create namespace llm")
    for command in CHART:
        place.run(command)
    return CHART[-1]


@needs_helm
def test_a_release_of_the_chart_is_installed_and_changed(tmp_path: Path) -> None:
    with workplace(tmp_path, SMALL) as place:
        command = install(place)
        wanted = documents(place, "config/chart/files/manifest.yaml")
        made = {key for key in place.cluster.objects if key[0] not in ("Namespace", "Secret")}
        assert made == {(each["kind"], "llm", each["metadata"]["name"]) for each in wanted}
        image = "registry.example/promptly-engine:0.1.0"
        assert image in str(place.cluster.of_kind("RayService")["chat"])
        before = len(place.cluster.changes)
        place.run(command.replace(image, "registry.example/promptly-engine:0.1.1"))
        changed = [path for path in place.cluster.changes[before:] if "/secrets" not in path]
        assert [path.rsplit("/", 1)[-1] for path in changed] == ["chat"]
        assert image not in str(place.cluster.of_kind("RayService")["chat"])
        states = [each["metadata"]["labels"]["status"] for each in place.cluster.of_kind("Secret").values()]
        assert sorted(states) == ["deployed", "superseded"]


@needs_helm
def test_an_uninstalled_release_leaves_its_claims_to_the_next(tmp_path: Path) -> None:
    """Stored answers, accounts and a day's download of weights."""
    with workplace(tmp_path, SMALL) as place:
        command = install(place)
        before = {name: each["metadata"]["uid"] for name, each in claims(place).items()}
        assert before.keys() == CLAIMS
        place.run("helm uninstall chat --namespace llm")
        left = {key[0] for key in place.cluster.objects}
        assert left == {"Namespace", "PersistentVolumeClaim"}
        place.run(command)
        assert {name: each["metadata"]["uid"] for name, each in claims(place).items()} == before


def claims(place: Workplace) -> dict[str, Any]:
    return place.cluster.of_kind("PersistentVolumeClaim")
