"""``promptly manifest``: a config file in, objects out that Kubernetes and its operators accept."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from ray.autoscaler._private.kuberay.autoscaling_config import _get_ray_resources_from_group_spec
from ray.serve.schema import ServeDeploySchema
from support.kubernetes_schemas import Json, faults, pod_templates

from deployments.cli.main import main
from deployments.engine.replica import bundles
from serve_app.engines.placement import check_placement
from serve_app.manifests.options import PRODUCTS
from serve_app.planning.hardware import DEVICES
from serve_app.settings import load_file, parse_args

ROOT = Path(__file__).parents[3]
CRDS = "PROMPTLY_TEST_CRDS"
GPU_CONFIGS = [ROOT / "config" / f"{name}.yaml" for name in ("gpu-8b", "gpu-70b-tp4", "gpu-8x")]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> list[Json]:
    status = main(["manifest", *map(str, arguments), "--offline"])
    out, err = capsys.readouterr()
    assert (status, err) == (0, "")
    return list(yaml.safe_load_all(out))


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """What it says, having printed no object."""
    status = main(["manifest", *map(str, arguments), "--offline"])
    out, err = capsys.readouterr()
    assert (status, out) == (1, "")
    return err


def of_kind(objects: list[Json], kind: str) -> list[Json]:
    return [each for each in objects if each["kind"] == kind]


def pods(objects: list[Json]) -> Iterator[tuple[str, Json]]:
    (service,) = of_kind(objects, "RayService")
    return pod_templates(service)


def cluster_of(objects: list[Json]) -> Json:
    (service,) = of_kind(objects, "RayService")
    cluster: Json = service["spec"]["rayClusterConfig"]
    return cluster


def group_of(objects: list[Json], name: str) -> Json:
    (found,) = (each for each in cluster_of(objects)["workerGroupSpecs"] if each["groupName"] == name)
    group: Json = found
    return group


def container_of(template: Json) -> Json:
    (found,) = template["spec"]["containers"]
    container: Json = found
    return container


def installed_schemas() -> dict[str, Json]:
    """The operators' own definitions, closed: without this, a misspelt field would be dropped in silence."""
    folder = os.environ.get(CRDS)
    if folder is None:
        return {}
    found = {}
    for file in Path(folder).glob("*.yaml"):
        spec = yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]
        (version,) = (each for each in spec["versions"] if each["storage"])
        found[spec["names"]["kind"]] = closed(version["schema"]["openAPIV3Schema"])
    return found


def closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object" and schema["properties"]:
        result.setdefault("additionalProperties", False)
    return result


def small_config(tmp_path: Path, **args: Any) -> Path:
    """One model on one GPU whose shape is on record."""
    model = {
        "id": "chat",
        "source": "Qwen/Qwen3-8B",
        "engine": {"accelerator": "gpu", "accelerator_type": "H100", **args.pop("engine", {})},
        **args.pop("model", {}),
    }
    document = {
        "http_options": {"host": args.pop("host", "0.0.0.0"), "port": args.pop("port", 8000)},
        "applications": [
            {
                "name": "promptly",
                "route_prefix": "/",
                "import_path": "serve_app.app:build",
                "args": {"auth": {"keys_file": "keys.json"}, "models": [model], **args},
            }
        ],
    }
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


@pytest.mark.parametrize("config", GPU_CONFIGS, ids=lambda file: file.stem)
def test_kubernetes_and_its_operators_accept_what_is_printed(
    capsys: pytest.CaptureFixture[str], config: Path
) -> None:
    objects = printed(capsys, config, "--device", "H100", "--storage-class", "fast", "--name", "chat")
    installed = installed_schemas()
    for each in objects:
        assert faults(each) == []
        if each["kind"] in installed:
            jsonschema.validate(each, installed[each["kind"]])


def test_the_schemas_find_a_misspelt_field(capsys: pytest.CaptureFixture[str]) -> None:
    objects = printed(capsys, GPU_CONFIGS[0], "--device", "H100")
    (service,) = of_kind(objects, "RayService")
    _, template = next(pods(objects))
    template["spec"]["containers"][0]["startupProbe"]["httpget"] = {}
    (fault,) = faults(service)
    assert fault.startswith("pods of head: spec.containers[0].startupProbe: ")
    assert "'httpget' was unexpected" in fault
    service["spec"]["rayClusterConfig"]["gcsFaultToleranceOption"] = {}
    (fault,) = faults(service)
    assert "'gcsFaultToleranceOption' was unexpected" in fault


@pytest.mark.parametrize("config", GPU_CONFIGS, ids=lambda file: file.stem)
def test_serve_and_promptly_read_the_config_within(capsys: pytest.CaptureFixture[str], config: Path) -> None:
    (service,) = of_kind(printed(capsys, config, "--device", "H100"), "RayService")
    served = yaml.safe_load(service["spec"]["serveConfigV2"])
    ServeDeploySchema.model_validate(served)
    given = yaml.safe_load(config.read_text())["applications"][0]["args"]
    args = served["applications"][0]["args"]
    parse_args(args, source="manifest")
    assert args | {"auth": None, "nodes": None} == given | {"auth": None, "nodes": None}
    assert args["nodes"] == {"front": "promptly_front", "files": "promptly_files"}
    assert args["auth"]["keys_file"] == "/etc/promptly/keys/keys.json"


def test_an_engine_gets_its_gpus_on_nodes_that_have_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    engine = {"tensor_parallel_size": 2, "kv_offload": {"size_gib": 10}}
    config = small_config(tmp_path, engine=engine, model={"replicas": {"min": 1, "max": 3}})
    objects = printed(capsys, config)
    group = group_of(objects, "engine-chat")
    assert (group["minReplicas"], group["maxReplicas"]) == (1, 3)
    spec = group["template"]["spec"]
    (container,) = spec["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"
    affinity = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (expression,) = affinity["nodeSelectorTerms"][0]["matchExpressions"]
    assert expression["values"] == ["NVIDIA-H100-80GB-HBM3"]
    (shared,) = (each for each in spec["volumes"] if each["name"] == "shm")
    assert shared["emptyDir"] == {"medium": "Memory", "sizeLimit": "18Gi"}


def test_an_engine_over_two_nodes_is_a_group_of_two_hosts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = small_config(tmp_path, engine={"tensor_parallel_size": 4, "pipeline_parallel_size": 2})
    group = group_of(printed(capsys, config, "--gpus-per-node", "4"), "engine-chat")
    assert group["numOfHosts"] == 2
    assert group["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "4"


def test_kubernetes_waits_longer_than_ray_and_ray_longer_than_a_drain(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = small_config(tmp_path, model={"drain_timeout_s": 200.0})
    for name, template in pods(printed(capsys, config)):
        if name == "head":
            continue
        grace = template["spec"]["terminationGracePeriodSeconds"]
        container = template["spec"]["containers"][0]
        environment = {each["name"]: each["value"] for each in container["env"]}
        ray_s = int(environment["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"])
        assert grace > ray_s > 215


def test_no_container_may_become_root_or_write_its_image(capsys: pytest.CaptureFixture[str]) -> None:
    for _, template in pods(printed(capsys, GPU_CONFIGS[0], "--device", "H100")):
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            rights = container["securityContext"]
            assert rights["readOnlyRootFilesystem"] is True
            assert rights["capabilities"] == {"drop": ["ALL"]}
            volumes = {each["name"] for each in spec["volumes"]}
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes


def test_pods_have_the_environment_of_a_start(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What `make serve` gives Ray for safety and speed is not lost on Kubernetes."""
    for _, template in pods(printed(capsys, small_config(tmp_path))):
        names = {each["name"] for each in template["spec"]["containers"][0]["env"]}
        assert {
            "RAY_SERVE_ENABLE_HA_PROXY",
            "RAY_SERVE_CONTROLLER_CALLBACK_IMPORT_PATH",
            "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH",
            "RAY_SERVE_HAPROXY_SOCKET_PATH",
            "PROMPTLY_CONFIG_FILE",
        } <= names


FOLDERS = (
    "HOME",
    "HF_HOME",
    "VLLM_CACHE_ROOT",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "PROMPTLY_CACHE",
)


@pytest.mark.parametrize("config", GPU_CONFIGS, ids=lambda path: path.stem)
def test_what_a_pod_writes_is_in_a_volume(capsys: pytest.CaptureFixture[str], config: Path) -> None:
    """Its image is read-only."""
    for name, template in pods(printed(capsys, config, "--device", "H100")):
        (container,) = template["spec"]["containers"]
        env = {each["name"]: each["value"] for each in container["env"]}
        writable = [each["mountPath"] for each in container["volumeMounts"] if not each.get("readOnly")]
        folders = [env[folder] for folder in FOLDERS if folder in env] + ["/tmp", "/dev/shm"]
        outside = [
            each for each in folders if not any(Path(each).is_relative_to(mount) for mount in writable)
        ]
        assert not outside, name
        assert ("VLLM_CACHE_ROOT" in env) == name.startswith("engine"), name


@pytest.mark.parametrize("config", GPU_CONFIGS, ids=lambda path: path.stem)
def test_every_claim_is_used_and_every_used_one_is_made(
    capsys: pytest.CaptureFixture[str], config: Path
) -> None:
    objects = printed(capsys, config, "--device", "H100", "--storage-class", "fast")
    made = {each["metadata"]["name"]: each["spec"] for each in of_kind(objects, "PersistentVolumeClaim")}
    used: dict[str, set[str]] = {}
    for name, template in pods(objects):
        for volume in template["spec"]["volumes"]:
            if claim := volume.get("persistentVolumeClaim"):
                used.setdefault(claim["claimName"], set()).add(name)
    assert used.keys() == made.keys()
    assert {spec["storageClassName"] for spec in made.values()} == {"fast"}
    shared = {name for name, by in used.items() if len(by) > 1}
    assert all(made[name]["accessModes"] == ["ReadWriteMany"] for name in shared)
    assert all(group.startswith("engine") for group in used["promptly-compiled"])
    assert used["promptly-state"] == {"files"}
    assert made["promptly-state"]["accessModes"] == ["ReadWriteOnce"], (
        "databases are on a disk, not a network"
    )


def test_parts_run_in_the_pods_that_are_made_for_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """An engine's pod has a CPU to spare, and an owner of files that ran there would lose them with it."""
    cluster = cluster_of(printed(capsys, small_config(tmp_path, nodes={"front": "own_name"})))
    given = {
        each["groupName"]: each["rayStartParams"].get("resources") for each in cluster["workerGroupSpecs"]
    }
    assert given == {
        "front": """'{"own_name": 1}'""",
        "files": """'{"promptly_files": 1}'""",
        "engine-chat": """'{"accelerator_type:H100": 1}'""",
    }


@pytest.mark.parametrize("nodes", [{"front": "promptly_files"}, {"files": "promptly_front"}])
def test_a_name_that_the_manifest_gives_to_the_other_pods_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, nodes: dict[str, str]
) -> None:
    """Owners of files could run in the pods for gateways, whose folders are lost with them."""
    assert main(["manifest", str(small_config(tmp_path, nodes=nodes))]) == 1
    (name,) = nodes.values()
    assert f"nodes: `front` and `files` are both {name!r}" in capsys.readouterr().err


@pytest.mark.parametrize("taken", ["front", "files", "other"])
def test_an_engine_with_the_name_of_other_pods_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, taken: str
) -> None:
    """It could start in an image without vLLM, files where folders are lost, and small engines on GPUs of
    large ones."""
    engine = {"accelerator": "gpu", "accelerator_type": "H100", "nodes": "own_name"}
    other = {**engine, "nodes": "own_name" if taken == "other" else None}
    ids = {"small": engine, "large": other}
    models = [{"id": name, "source": "Qwen/Qwen3-8B", "engine": each} for name, each in ids.items()]
    nodes = {} if taken == "other" else {"nodes": {taken: "own_name"}}
    assert main(["manifest", str(small_config(tmp_path, models=models, **nodes))]) == 1
    said = capsys.readouterr().err
    assert "would both be 'own_name'" in said
    assert "engine-small" in said


def test_rays_autoscaler_knows_which_pods_have_the_gpus_that_engines_ask_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It reads the groups as Ray's own code does: a replica's bundle has to fit one of them."""
    config = small_config(tmp_path, model={"replicas": {"min": 0, "max": 2}})
    group = group_of(printed(capsys, config), "engine-chat")
    offered = _get_ray_resources_from_group_spec(group, is_head=False)
    (settings,) = load_file(config)
    for bundle in bundles(settings.models[0].managed_engine):
        assert bundle.keys() <= offered.keys()


def test_an_engine_that_fits_pods_of_another_part_has_a_resource_of_its_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Ray prefers the pod with the most GPUs left: the small engine would take one of the large one's."""
    gpu = {"accelerator": "gpu", "accelerator_type": "H100"}
    small, large = {**gpu, "nodes": "own_name"}, {**gpu, "tensor_parallel_size": 4}
    ids = {"small": small, "large": large}
    models = [{"id": name, "source": "Qwen/Qwen3-8B", "engine": engine} for name, engine in ids.items()]
    on_cpus = {"accelerator": "cpu", "max_model_len": 2048, "cpu_kv_cache_gib": 4}
    alone = {"source": "HuggingFaceTB/SmolLM2-135M-Instruct", "engine": on_cpus}
    for args, wanted in (
        ({"models": models}, {"small": "own_name", "large": "promptly_engine_large"}),
        ({"model": alone}, {"chat": "promptly_engine_chat"}),  # else it would fit beside the gateways
        ({}, {"chat": None}),
    ):
        objects = printed(capsys, small_config(tmp_path, **args))
        (service,) = of_kind(objects, "RayService")
        served = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"][0]["args"]
        settings = parse_args(served, source="manifest")
        assert {model.id: model.managed_engine.nodes for model in settings.models} == wanted
        for model in settings.models:
            group = group_of(objects, f"engine-{model.id}")
            offered = _get_ray_resources_from_group_spec(group, is_head=False)
            for bundle in bundles(model.managed_engine):
                assert bundle.keys() <= offered.keys()


def test_without_owners_of_files_there_is_no_pod_and_no_claim_for_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    objects = printed(capsys, small_config(tmp_path, responses={"enabled": False}))
    assert [name for name, _ in pods(objects)] == ["head", "front", "engine-chat"]
    claims = {each["metadata"]["name"] for each in of_kind(objects, "PersistentVolumeClaim")}
    assert claims == {"promptly-weights", "promptly-compiled"}


@pytest.mark.parametrize("most", [1, 3])
def test_rays_autoscaler_may_ask_for_pods_and_nothing_else_talks_to_kubernetes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, most: int
) -> None:
    objects = printed(capsys, small_config(tmp_path, model={"replicas": {"min": 1, "max": most}}))
    cluster, scales = cluster_of(objects), most > 1
    tokens = {name: each["spec"]["automountServiceAccountToken"] for name, each in pods(objects)}
    assert tokens == {"head": scales, "front": False, "files": False, "engine-chat": False}
    assert cluster.get("enableInTreeAutoscaling", False) is scales
    if scales:
        rights = cluster["autoscalerOptions"]["securityContext"]
        assert rights == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def test_a_drain_of_nodes_takes_one_replica_of_a_group_at_a_time(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    budgets = of_kind(printed(capsys, small_config(tmp_path, model={"replicas": 3})), "PodDisruptionBudget")
    found = {each["metadata"]["name"]: each["spec"]["minAvailable"] for each in budgets}
    assert found == {"promptly-front": 1, "promptly-engine-chat": 2}
    for each in budgets:
        assert "maxUnavailable" not in each["spec"], "it needs a scale subresource, which RayCluster lacks"
        assert each["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_a_budget_counts_the_pods_that_are_ever_ready(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """One of an engine's hosts has a proxy, and a spare pod has none until a replica moves there."""

    def budget(config: Path, *options: str) -> Json | None:
        budgets = of_kind(printed(capsys, config, *options), "PodDisruptionBudget")
        found = {each["metadata"]["name"]: each["spec"] for each in budgets}
        return found.get("promptly-engine-chat")

    engine = {"tensor_parallel_size": 4, "pipeline_parallel_size": 2}
    two_hosts = budget(small_config(tmp_path, engine=engine, model={"replicas": 2}), "--gpus-per-node", "4")
    assert two_hosts is not None
    assert two_hosts["minAvailable"] == 1
    assert "unhealthyPodEvictionPolicy" not in two_hosts, "an engine needs its hosts that are never ready"
    spare = budget(small_config(tmp_path, model={"replicas": 2}), "--spare")
    assert spare is not None
    assert spare["minAvailable"] == 1
    assert budget(small_config(tmp_path), "--spare") is None, "the only replica may be moved"


def test_variables_of_a_secret_reach_every_pod_where_there_is_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for _, template in pods(printed(capsys, small_config(tmp_path))):
        secret = {"secretRef": {"name": "promptly-env", "optional": True}}
        assert container_of(template)["envFrom"] == [secret]


def test_the_pod_monitor_can_be_left_out(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert of_kind(printed(capsys, small_config(tmp_path)), "PodMonitor")
    assert not of_kind(printed(capsys, small_config(tmp_path), "--no-pod-monitor"), "PodMonitor")


def test_clients_reach_one_port_and_the_operators_only_theirs(capsys: pytest.CaptureFixture[str]) -> None:
    objects = printed(capsys, GPU_CONFIGS[0], "--device", "H100", "--namespace", "llm")
    app = {"app.kubernetes.io/part-of": "promptly"}
    policies = {each["metadata"]["name"]: each["spec"] for each in of_kind(objects, "NetworkPolicy")}
    for spec in policies.values():
        assert spec["podSelector"]["matchLabels"] == app
        assert spec["policyTypes"] == ["Ingress"]
    (clients,) = policies.pop("promptly-clients")["ingress"]
    assert clients == {"ports": [{"protocol": "TCP", "port": 8000}]}
    (inside,) = policies.values()
    own, *others = inside["ingress"]
    assert own == {"from": [{"podSelector": {"matchLabels": app}}]}, "its own pods reach each other"
    found = {}
    for rule in others:
        ((source,), (port,)) = rule["from"], rule["ports"]
        (label,) = source["podSelector"]["matchLabels"].items()
        found[label] = port["port"]
    # The operator's name is `kuberay-operator` by Helm and `kuberay` by kustomize; its component is the same.
    operator = ("app.kubernetes.io/component", "kuberay-operator")
    assert found == {operator: 8265, ("app.kubernetes.io/name", "prometheus"): 8080}
    for _, template in pods(objects):
        assert template["metadata"]["labels"].items() >= app.items(), "no pod is outside the policies"


def test_metrics_are_scraped_from_a_port_that_every_pod_has(capsys: pytest.CaptureFixture[str]) -> None:
    objects = printed(capsys, GPU_CONFIGS[0], "--device", "H100")
    (monitor,) = of_kind(objects, "PodMonitor")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    selected = monitor["spec"]["selector"]["matchLabels"].items()
    for name, template in pods(objects):
        ports = {each["name"] for each in template["spec"]["containers"][0]["ports"]}
        assert endpoint["port"] in ports, name
        assert template["metadata"]["labels"].items() >= selected, name


def test_front_pods_stand_on_different_nodes_and_have_cpus_for_what_they_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (service,) = of_kind(printed(capsys, GPU_CONFIGS[0], "--device", "H100"), "RayService")
    groups = {each["groupName"]: each for each in service["spec"]["rayClusterConfig"]["workerGroupSpecs"]}
    front = groups["front"]
    (rule,) = front["template"]["spec"]["affinity"]["podAntiAffinity"].popitem()[1]
    term = rule.get("podAffinityTerm", rule)
    assert term["topologyKey"] == "kubernetes.io/hostname"
    labels = front["template"]["metadata"]["labels"]
    assert term["labelSelector"]["matchLabels"].items() <= labels.items()
    (container,) = front["template"]["spec"]["containers"]
    assert "cpu" not in container["resources"]["limits"], "a throttled gateway holds up every stream"
    assert container["readinessProbe"]["httpGet"]["port"] == 8000


def test_a_new_config_is_rolled_in_place_because_a_second_cluster_needs_every_gpu_twice(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (service,) = of_kind(printed(capsys, small_config(tmp_path)), "RayService")
    assert service["spec"]["upgradeStrategy"] == {"type": "None"}


def test_the_head_runs_no_replica_serves_no_client_and_comes_back_with_what_it_knew(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    objects = printed(capsys, small_config(tmp_path), "--storage-class", "fast")
    (service,) = of_kind(objects, "RayService")
    assert service["spec"]["excludeHeadPodFromServeSvc"] is True
    cluster = cluster_of(objects)
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    kept = {"backend": "rocksdb", "storage": {"size": "1Gi", "storageClassName": "fast"}}
    assert cluster["gcsFaultToleranceOptions"] == kept
    plain = cluster_of(printed(capsys, small_config(tmp_path)))
    assert plain["gcsFaultToleranceOptions"]["storage"] == {"size": "1Gi"}, "the cluster's default"


def test_the_heads_volume_names_its_feature_gate_and_can_be_left_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """KubeRay refuses the whole RayService where its operator runs without the gate, which is the default."""

    def text(*options: str) -> str:
        assert main(["manifest", str(small_config(tmp_path)), "--offline", *options]) == 0
        return capsys.readouterr().out

    assert "# KubeRay's operator needs its feature gate GCSFaultToleranceEmbeddedStorage" in text()
    without = text("--no-head-storage")
    assert "GCSFaultToleranceEmbeddedStorage" not in without
    assert "gcsFaultToleranceOptions" not in cluster_of(list(yaml.safe_load_all(without)))


def test_who_calls_ray_needs_the_operators_token(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cluster_of(printed(capsys, small_config(tmp_path)))["authOptions"] == {"mode": "token"}


@pytest.mark.parametrize("config", GPU_CONFIGS, ids=lambda path: path.stem)
def test_ray_has_the_cpus_and_gpus_that_the_config_asks_for(
    capsys: pytest.CaptureFixture[str], config: Path
) -> None:
    """`promptly serve` refuses a config that does not fit its cluster: this one must."""
    objects = printed(capsys, config, "--device", "H100")
    (settings,) = load_file(config)
    total = {"CPU": 0.0, "GPU": 0.0}
    for group in cluster_of(objects)["workerGroupSpecs"]:
        pods = group["minReplicas"] * group["numOfHosts"]
        limits = container_of(group["template"])["resources"]["limits"]
        total["CPU"] += pods * float(group["rayStartParams"]["num-cpus"])
        total["GPU"] += pods * float(limits.get("nvidia.com/gpu", 0))
    assert list(check_placement(settings, total)) == []
    one = {"CPU": float(group_of(objects, "front")["rayStartParams"]["num-cpus"])}
    lacking = [each.setting for each in check_placement(settings, one)]
    assert all(each.startswith("models[") for each in lacking), "one front pod has room for all but engines"


def test_a_pod_of_an_engine_has_a_cpu_more_than_its_replica_takes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    group = group_of(printed(capsys, small_config(tmp_path, engine={"num_cpus": 5})), "engine-chat")
    assert group["rayStartParams"]["num-cpus"] == "6"


def test_only_engines_with_gpus_may_stand_on_nodes_that_are_kept_for_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = {
        name: template["spec"].get("tolerations")
        for name, template in pods(printed(capsys, small_config(tmp_path)))
    }
    gpu = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert found == {"head": None, "front": None, "files": None, "engine-chat": gpu}


def test_a_spare_is_one_more_pod_for_each_rank(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    engine = {"tensor_parallel_size": 4, "data_parallel_size": 2, "enable_expert_parallel": True}
    experts = {"source": "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "replicas": {"min": 2, "max": 3}}
    config = small_config(tmp_path, engine=engine, model=experts)

    def bounds(*options: str) -> tuple[int, int, int]:
        group = group_of(printed(capsys, config, *options), "engine-chat")
        return group["replicas"], group["minReplicas"], group["maxReplicas"]

    assert bounds() == (4, 4, 6)
    assert bounds("--spare") == (6, 6, 8)


def test_the_front_has_the_gateways_image_and_all_else_the_engines(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    upstream = {"name": "vendor", "url": "https://vendor.example/v1", "key_env": "UPSTREAM_KEY"}
    config = small_config(tmp_path, model={"upstreams": [upstream]})
    options = ("--gateway-image", "registry.example/gateway:1", "--engine-image", "registry.example/engine:2")
    for name, template in pods(printed(capsys, config, *options)):
        spec = template["spec"]
        images = {each["image"] for each in (*spec["containers"], *spec["initContainers"])}
        wanted = "registry.example/gateway:1" if name in ("front", "files") else "registry.example/engine:2"
        assert images == {wanted}, name


def test_certificates_are_mounted_where_the_config_names_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    proxy = {"tls_certificate": "mine/cert.pem", "tls_key": "mine/key.pem", "tls_client_ca": "mine/ca.pem"}
    config = small_config(tmp_path, proxy={**proxy, "header_timeout_s": 3})
    assert main(["manifest", str(config), "--offline", "--name", "chat"]) == 0
    text = capsys.readouterr().out
    (command,) = re.findall(r"# kubectl .* secret generic chat-tls (.*)", text)
    files = dict(each.removeprefix("--from-file=").split("=") for each in command.split())
    assert files == {f"{name}.pem": file for name, file in proxy.items()}
    objects = list(yaml.safe_load_all(text))
    (service,) = of_kind(objects, "RayService")
    served = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"][0]["args"]["proxy"]
    assert served.pop("header_timeout_s") == 3
    assert served.keys() == proxy.keys()
    for _, template in pods(objects):
        mounts = container_of(template)["volumeMounts"]
        (mount,) = (each for each in mounts if each["name"] == "tls")
        assert {f"{mount['mountPath']}/{file}" for file in files} == set(served.values())
        (volume,) = (each for each in template["spec"]["volumes"] if each["name"] == "tls")
        assert volume["secret"]["secretName"] == "chat-tls"


def test_a_pods_proxy_is_asked_in_the_scheme_that_it_speaks(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    proxy = {"tls_certificate": "cert.pem", "tls_key": "key.pem"}
    for args, scheme in (({}, "HTTP"), ({"proxy": proxy}, "HTTPS")):
        for name, template in pods(printed(capsys, small_config(tmp_path, **args))):
            if name != "head":
                assert container_of(template)["readinessProbe"]["httpGet"]["scheme"] == scheme, name


def test_every_pod_has_five_minutes_until_rays_agent_answers(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name, template in pods(printed(capsys, small_config(tmp_path))):
        probe = container_of(template)["startupProbe"]
        assert probe["httpGet"] == {"path": "/api/local_raylet_healthz", "port": 52365}, name
        assert probe["periodSeconds"] * probe["failureThreshold"] == 300, name


def test_another_port_is_the_one_that_is_open_asked_and_served(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    objects = printed(capsys, small_config(tmp_path, port=9443))
    (service,) = of_kind(objects, "RayService")
    assert yaml.safe_load(service["spec"]["serveConfigV2"])["http_options"]["port"] == 9443
    (clients,) = (
        each["spec"]["ingress"]
        for each in of_kind(objects, "NetworkPolicy")
        if each["metadata"]["name"] == "promptly-clients"
    )
    assert clients == [{"ports": [{"protocol": "TCP", "port": 9443}]}]
    for name, template in pods(objects):
        container = container_of(template)
        ports = {each["name"]: each["containerPort"] for each in container["ports"]}
        assert ports["serve"] == 9443, "KubeRay makes the clients' service of the head's port of this name"
        if name != "head":
            assert container["readinessProbe"]["httpGet"]["port"] == 9443


def test_an_engine_on_cpus_asks_for_no_gpu_and_for_no_node_that_has_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    engine = {"accelerator": "cpu", "num_cpus": 3, "max_model_len": 2048, "cpu_kv_cache_gib": 10}
    model = {"source": "HuggingFaceTB/SmolLM2-135M-Instruct", "engine": engine, "replicas": 2}
    objects = printed(capsys, small_config(tmp_path, model=model))
    group = group_of(objects, "engine-chat")
    assert (group["replicas"], group["numOfHosts"]) == (2, 1)
    assert group["rayStartParams"]["num-cpus"] == "5", "the replica's, its worker's, and one beside"
    spec = group["template"]["spec"]
    resources = container_of(group["template"])["resources"]
    assert resources["requests"].keys() == {"cpu", "memory"}
    assert int(resources["limits"]["memory"].removesuffix("Gi")) > 10, "the KV cache is in the pod's memory"
    assert "tolerations" not in spec
    assert "nodeAffinity" not in spec["affinity"]


def test_prefill_engines_have_pods_beside_those_that_decode(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    engine = {"disaggregation": {"prefill_replicas": 3}}
    config = small_config(tmp_path, engine=engine, model={"replicas": {"min": 1, "max": 2}})
    group = group_of(printed(capsys, config), "engine-chat")
    assert (group["minReplicas"], group["maxReplicas"]) == (4, 5)


def test_secrets_are_named_and_never_printed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPSTREAM_KEY", "sk-not-for-printing")
    upstream = {"name": "vendor", "url": "https://vendor.example/v1", "key_env": "UPSTREAM_KEY"}
    config = small_config(tmp_path, model={"upstreams": [upstream]})
    assert main(["manifest", str(config), "--offline", "--name", "chat"]) == 0
    text = capsys.readouterr().out
    assert "sk-not-for-printing" not in text
    assert "create secret generic chat-keys --from-file=keys.json=keys.json" in text
    assert re.search(r"create secret generic chat-secrets .*UPSTREAM_KEY", text)
    for _, template in pods(list(yaml.safe_load_all(text))):
        assert [each["name"] for each in template["spec"]["initContainers"]] == ["secrets"]


def test_folders_that_are_in_no_volume_are_named_at_the_top(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folders = {
        "responses": {"path": "/data/responses"},
        "cache": {"path": "/var/lib/promptly/cache"},
        "media": {"upload_folder": "/tmp"},
        "embedder": {"id": "e", "source": "owner/e"},
        "prompts": {"folder": "prompts"},
    }
    assert main(["manifest", str(small_config(tmp_path, **folders)), "--offline"]) == 0
    head = [line for line in capsys.readouterr().out.splitlines() if line.startswith("# ") and " = " in line]
    assert {line.split(" = ")[0] for line in head} == {"# responses.path", "# prompts.folder"}


def test_an_unknown_accelerator_is_one_message(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = small_config(tmp_path, engine={"accelerator_type": "TPU-v9"})
    said = refused(capsys, config)
    assert said.count("\n") == 1
    assert said.startswith(
        "models[0].engine.accelerator_type = 'TPU-v9': unknown accelerator; expected one of"
    )


def test_an_engine_without_an_accelerator_type_needs_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert "or give --device" in refused(capsys, GPU_CONFIGS[2])


def test_a_model_that_does_not_fit_has_no_manifest(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert "models[0].engine" in refused(capsys, small_config(tmp_path, engine={"accelerator_type": "T4"}))


def test_an_address_that_no_pod_reaches_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert "http_options.host = '127.0.0.1'" in refused(capsys, small_config(tmp_path, host="127.0.0.1"))


def test_a_port_that_ray_listens_on_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "http_options.port = 8080" in refused(capsys, small_config(tmp_path, port=8080))


def test_an_embedder_that_needs_a_gpu_is_refused_because_its_pods_have_none(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    embedder = {"id": "e", "source": "owner/e", "device": "cuda"}
    assert "embedder.device = 'cuda'" in refused(capsys, small_config(tmp_path, embedder=embedder))


@pytest.mark.parametrize("name", ["Chat", "9", "a_b", "a" * 41])
def test_a_name_that_kubernetes_refuses_is_refused_here(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    assert f"--name {name}" in refused(capsys, small_config(tmp_path), "--name", name)


def test_every_known_nvidia_device_has_its_label() -> None:
    assert set(PRODUCTS) == {device.name for device in DEVICES} - {"cpu", "MI300X"}


def test_the_chart_has_few_values() -> None:
    values = (ROOT / "config" / "chart" / "values.yaml").read_text(encoding="utf-8")
    assert len(values.splitlines()) <= 150
    assert set(yaml.safe_load(values)) == {
        "images",
        "imagePullSecrets",
        "storageClass",
        "claims",
        "groups",
        "nodeSelector",
    }


def test_models_whose_ids_are_alike_have_pods_of_their_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    long = "qwen3-235b-a22b-instruct-2507-fp8"
    engine = {"accelerator": "gpu", "accelerator_type": "H100"}
    ids = [
        "a/b",
        "a-b",
        "a-b-2",
        long,
        f"{long}-next",
        "\N{CYRILLIC SMALL LETTER ZHE}",
        "\N{HIRAGANA LETTER A}",
    ]
    models = [{"id": name, "source": "Qwen/Qwen3-8B", "engine": engine} for name in ids]
    groups = [name for name, _ in pods(printed(capsys, small_config(tmp_path, models=models)))]
    assert len(set(groups)) == len(groups) == 3 + len(ids)
    assert groups[3:6] == ["engine-a-b", "engine-a-b-3", "engine-a-b-2"]
