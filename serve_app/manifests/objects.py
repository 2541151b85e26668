"""All objects of a manifest, in the order in which Kubernetes needs them."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from serve_app.errors import SettingsError
from serve_app.manifests.groups import GIB, Group, groups, node_names
from serve_app.manifests.options import Choices
from serve_app.manifests.pods import (
    DASHBOARD_PORT,
    KEYS,
    METRICS_PORT,
    PART_OF,
    RAY_PORTS,
    SERVE_PORT,
    Json,
    Setup,
    Wants,
    head_template,
    labels_of,
    no_rights,
    worker_template,
)
from serve_app.planning import ModelPlan
from serve_app.settings import KeySettings, Settings

TLS_FOLDER = "/etc/promptly/tls"
SMALL_WEIGHTS_GIB = 20
COMPILED_GIB = 20
STATE_GIB = 20
GCS_STORAGE = "1Gi"
IDLE_S = 600
"""How long a pod of an autoscaled group stays without a replica."""


def manifest(
    document: Mapping[str, Any],
    settings: Settings,
    plans: Sequence[ModelPlan],
    choices: Choices,
    environment: Mapping[str, str],
    *,
    secret_variables: frozenset[str],
    ray_version: str,
) -> list[Json]:
    """``document``: the Serve config file; ``environment``: the variables of every node.

    Raises: SettingsError: an accelerator is unknown, or another choice cannot be used.
    """
    choices.check()
    pods = groups(settings, plans, choices)
    served, wants = _in_pods(document, settings, pods, bool(secret_variables))
    text = _yaml_text(served)
    return [
        _config_map(choices, text),
        *_claims(choices, pods, plans),
        *_policies(choices, wants),
        _ray_service(pods, Setup(choices, wants, environment), text, ray_version),
        *(_budget(choices, group) for group in pods if group.serving > 1),
        *([_pod_monitor(choices)] if choices.pod_monitor else []),
    ]


def _yaml_text(document: Json) -> str:
    import yaml

    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    return text


def _in_pods(
    document: Mapping[str, Any], settings: Settings, pods: Sequence[Group], secrets: bool
) -> tuple[Json, Wants]:
    """The config as pods read it: with the folders of its keys and certificates, and the names of the pods
    for its parts."""
    served: Json = copy.deepcopy(dict(document))
    args = served["applications"][0]["args"]
    args["nodes"] = node_names(settings)
    for group in pods:
        if group.model is not None and group.only is not None:
            model = args["models"][group.model]
            model["engine"] = {**(model.get("engine") or {}), "nodes": group.only}
    keys_file = isinstance(settings.auth, KeySettings) and settings.auth.keys_file is not None
    if keys_file:
        args["auth"] = {**args["auth"], "keys_file": KEYS}
    proxy = settings.proxy
    named = {
        "tls_certificate": proxy.tls_certificate,
        "tls_key": proxy.tls_key,
        "tls_client_ca": proxy.tls_client_ca,
    }
    tls = {name: f"{TLS_FOLDER}/{name}.pem" for name, file in named.items() if file is not None}
    if tls:
        args["proxy"] = {**args["proxy"], **tls}
    port = (served.get("http_options") or {}).get("port", SERVE_PORT)
    if port in RAY_PORTS:
        raise SettingsError(
            f"http_options.port = {port}: Ray listens there in every pod; expected another, as {SERVE_PORT}"
        )
    return served, Wants(secrets, keys_file, tuple(tls.values()), port)


def _named(choices: Choices, name: str) -> Json:
    return {"name": name, "namespace": choices.namespace, "labels": {PART_OF: choices.name}}


def _config_map(choices: Choices, text: str) -> Json:
    """The config file for the proxies, which read its `proxy` section on their own node."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _named(choices, f"{choices.name}-config"),
        "data": {"config.yaml": text},
    }


def _claims(choices: Choices, pods: Sequence[Group], plans: Sequence[ModelPlan]) -> list[Json]:
    """Weights and compiled code are read by every engine, so a second pod neither downloads nor compiles."""
    weights = SMALL_WEIGHTS_GIB + math.ceil(1.2 * sum(plan.groups.total for plan in plans) / GIB)
    claims = [
        _claim(choices, "weights", weights, "ReadWriteMany"),
        _claim(choices, "compiled", COMPILED_GIB, "ReadWriteMany"),
    ]
    # A disk of one node: databases in files do not belong on a network's file system.
    state = [_claim(choices, "state", STATE_GIB, "ReadWriteOnce") for group in pods if group.keeps_files]
    return [*claims, *state]


def _claim(choices: Choices, part: str, gib: int, mode: str) -> Json:
    spec: Json = {"accessModes": [mode], "resources": {"requests": {"storage": f"{gib}Gi"}}}
    if choices.storage_class is not None:
        spec["storageClassName"] = choices.storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": _named(choices, f"{choices.name}-{part}"),
        "spec": spec,
    }


def _ray_service(pods: Sequence[Group], setup: Setup, text: str, ray_version: str) -> Json:
    choices = setup.choices
    grows = any(group.most > group.least for group in pods)
    cluster: Json = {
        "rayVersion": ray_version,
        # A client of Ray's ports can run code: every call carries a token, which the operator makes.
        "authOptions": {"mode": "token"},
        **_head_storage(choices),
        "headGroupSpec": {
            "rayStartParams": {"num-cpus": "0", "dashboard-host": "0.0.0.0"},
            "template": head_template(setup, scales=grows),
        },
        "workerGroupSpecs": [_worker_group(group, setup) for group in pods],
    }
    if grows:
        cluster["enableInTreeAutoscaling"] = True
        cluster["autoscalerOptions"] = {
            "version": "v2",
            "idleTimeoutSeconds": IDLE_S,
            "securityContext": no_rights(),
        }
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": _named(choices, choices.name),
        "spec": {
            # A change of the config rolls replicas in place. A second cluster would need every GPU twice.
            "upgradeStrategy": {"type": "None"},
            "excludeHeadPodFromServeSvc": True,
            "serveConfigV2": text,
            "rayClusterConfig": cluster,
        },
    }


def _head_storage(choices: Choices) -> Json:
    """The head's control store outlives its pod, and with it the application."""
    if not choices.head_storage:
        return {}
    storage: Json = {"size": GCS_STORAGE}
    if choices.storage_class is not None:
        storage["storageClassName"] = choices.storage_class
    return {"gcsFaultToleranceOptions": {"backend": "rocksdb", "storage": storage}}


def _worker_group(group: Group, setup: Setup) -> Json:
    return {
        "groupName": group.name,
        "replicas": group.least,
        "minReplicas": group.least,
        "maxReplicas": group.most,
        "numOfHosts": group.hosts,
        "rayStartParams": {"num-cpus": str(group.logical_cpus), **_resources(group)},
        "template": worker_template(group, setup),
    }


def _resources(group: Group) -> Json:
    """KubeRay hands the value to a shell, so the quotes of its JSON are quoted."""
    named = dict.fromkeys(filter(None, (group.accelerator, group.only)), 1)
    return {"resources": f"'{json.dumps(named)}'"} if named else {}


def _budget(choices: Choices, group: Group) -> Json:
    """Whoever drains nodes leaves all but one of the fewest replicas that a group has; what it was scaled to
    above them is not held. As a number of pods that stay: Kubernetes counts down from a size only where the
    pods' owner tells it (the scale subresource), which a RayCluster does not; it would then let no pod go."""
    spec: Json = {
        "minAvailable": group.serving - 1,
        "selector": {"matchLabels": labels_of(group, choices)},
    }
    if group.hosts == 1:
        # A pod that is not ready serves nobody, and a spare one never is: it holds up no drain. Of several
        # hosts only one is ever ready, and the engine needs them all.
        spec["unhealthyPodEvictionPolicy"] = "AlwaysAllow"
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _named(choices, f"{choices.name}-{group.name}"),
        "spec": spec,
    }


def _policies(choices: Choices, wants: Wants) -> list[Json]:
    """Among the pods all ports: Ray's and NCCL's are not fixed. From outside only what clients, the operator
    and Prometheus need."""
    own = {"podSelector": {"matchLabels": {PART_OF: choices.name}}}
    operator = {
        "namespaceSelector": {},
        # Helm's chart of the operator and its own kustomization both set this one; their names differ.
        "podSelector": {"matchLabels": {"app.kubernetes.io/component": "kuberay-operator"}},
    }
    prometheus = {
        "namespaceSelector": {},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}},
    }
    rules: dict[str, list[Json]] = {
        "": [
            {"from": [own]},
            {"from": [operator], "ports": [{"protocol": "TCP", "port": DASHBOARD_PORT}]},
            {"from": [prometheus], "ports": [{"protocol": "TCP", "port": METRICS_PORT}]},
        ],
        "-clients": [{"ports": [{"protocol": "TCP", "port": wants.serve_port}]}],
    }
    return [_policy(choices, f"{choices.name}{end}", ingress) for end, ingress in rules.items()]


def _policy(choices: Choices, name: str, ingress: list[Json]) -> Json:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _named(choices, name),
        "spec": {
            "podSelector": {"matchLabels": {PART_OF: choices.name}},
            "policyTypes": ["Ingress"],
            "ingress": ingress,
        },
    }


def _pod_monitor(choices: Choices) -> Json:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": _named(choices, choices.name),
        "spec": {
            "selector": {"matchLabels": {PART_OF: choices.name}},
            "podMetricsEndpoints": [{"port": "metrics", "path": "/metrics", "interval": "10s"}],
        },
    }
