"""The pod templates of a RayService: images, folders, probes, rights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from serve_app.manifests.groups import FRONT, Group
from serve_app.manifests.options import Choices
from serve_app.settings import Settings

Json = dict[str, Any]

USER = 1000
PART_OF = "app.kubernetes.io/part-of"
"""The label by which policies and monitors find the pods; a RayService gives its clusters new names."""

RUN, HOME, CACHE = "/run/promptly", "/home/promptly", "/var/lib/promptly"
PROXY_FOLDER = f"{RUN}/proxy"
CONFIG, KEYS = "/etc/promptly/config.yaml", "/etc/promptly/keys/keys.json"
SECRETS = f"{RUN}/secrets.json"
COMPILED, WEIGHTS = "/caches/compiled", "/caches/weights"
RAY_TO_POD_S = 20
"""How much longer Kubernetes waits than Ray, so that Ray's own end comes first."""

WRITTEN = (RUN, HOME, "/tmp", COMPILED, WEIGHTS, CACHE)
"""Volumes of the pods; all else is their images', which are read-only."""

METRICS_PORT, SERVE_PORT, AGENT_PORT, DASHBOARD_PORT, GCS_PORT = 8080, 8000, 52365, 8265, 6379

RAY_PORTS = frozenset({METRICS_PORT, AGENT_PORT, DASHBOARD_PORT, GCS_PORT, 8404, 8500, 9101, 10001})
"""With HAProxy's statistics, Serve's fallback proxy, HAProxy's metrics and Ray's client server."""

COPY_SECRETS = f"umask 077; cp /secrets/secrets.json {SECRETS}"
"""Kubernetes lets the pod's group read a secret's files, and Promptly refuses one that others may read."""


@dataclass(frozen=True, slots=True)
class Wants:
    """What the config needs beside its pods: a secret with the variables that it names, one with its keys
    file, certificates."""

    secrets: bool
    keys_file: bool
    tls_files: tuple[str, ...]
    serve_port: int = SERVE_PORT


@dataclass(frozen=True, slots=True)
class Setup:
    """What all pods share; ``environment``: variables of every container."""

    choices: Choices
    wants: Wants
    environment: Mapping[str, str]


def folders_without_volume(settings: Settings) -> Iterator[str]:
    """Settings that name a folder which is in no volume of the pods."""
    named = {
        "cache.path": settings.cache and settings.cache.path,
        "responses.path": settings.responses.path,
        "accounts.path": settings.accounts and settings.accounts.path,
        "feedback.path": settings.feedback and settings.feedback.path,
        "media.upload_folder": settings.media.upload_folder,
    }
    if settings.prompts is not None:
        prompts = settings.prompts.folder
        yield f"prompts.folder = {prompts!r}: no volume of the pods holds it: add one to those of `{FRONT}`"
    for setting, folder in named.items():
        if folder and not any(f"{folder}/".replace("~", HOME, 1).startswith(f"{each}/") for each in WRITTEN):
            yield f"{setting} = {folder!r}: no volume of the pods is there: add one, or use {CACHE}"


def labels_of(group: Group, choices: Choices) -> Json:
    """By which the pods of a group are found."""
    return {PART_OF: choices.name, "promptly/group": group.name}


def no_rights() -> Json:
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def head_template(setup: Setup, *, scales: bool) -> Json:
    """Ray's head: the control store, Serve's controller, the builder of the graph. No replica runs on it. It
    has the engines' image because the builder checks their arguments with vLLM's own parser. ``scales``:
    Ray's autoscaler runs beside it, which asks Kubernetes for pods."""
    group = Group("head", 1, 1, 2, 8, 2, 0, 0.0)
    # Nothing answers clients here, but KubeRay makes the clients' service of the head's port of this name.
    ports = {GCS_PORT: "gcs", DASHBOARD_PORT: "dashboard", setup.wants.serve_port: "serve"}
    template = _template("head", group, setup, ports)
    template["spec"]["automountServiceAccountToken"] = scales
    return template


def worker_template(group: Group, setup: Setup) -> Json:
    """Ray waits at the end of a pod for the streams on it, and, where Serve starts replacements first, for
    these."""
    wants = setup.wants
    ray_s = int(group.drain_s) + setup.choices.replacement_s
    extra = {"RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": str(ray_s)}
    setup = replace(setup, environment={**setup.environment, **extra})
    template = _template("worker", group, setup, {wants.serve_port: "serve"})
    template["spec"]["terminationGracePeriodSeconds"] = ray_s + RAY_TO_POD_S
    # A proxy runs where replicas do; the service sends requests to pods whose proxy answers.
    scheme = "HTTPS" if wants.tls_files else "HTTP"
    template["spec"]["containers"][0]["readinessProbe"] = {
        "httpGet": {"path": "/-/healthz", "port": wants.serve_port, "scheme": scheme},
        "periodSeconds": 2,
        "timeoutSeconds": 2,
        "failureThreshold": 2,
    }
    return template


def _template(role: str, group: Group, setup: Setup, ports: Mapping[int, str]) -> Json:
    choices, wants = setup.choices, setup.wants
    container = _container(role, group, setup, ports)
    spec: Json = {
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": _volumes(group, choices, wants),
    }
    if wants.secrets:
        spec["initContainers"] = [_copy_secrets(container["image"])]
    affinity = _affinity(group, choices)
    if affinity:
        spec["affinity"] = affinity
    if group.gpus:
        spec["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    labels = labels_of(group, choices)
    return {"metadata": {"labels": labels}, "spec": spec}


def _container(role: str, group: Group, setup: Setup, ports: Mapping[int, str]) -> Json:
    choices, wants = setup.choices, setup.wants
    environment = _environment(group, wants, setup.environment)
    all_ports = {**ports, METRICS_PORT: "metrics"}
    resources: Json = {"cpu": str(group.cpus), "memory": f"{group.memory_gib}Gi"}
    limits: Json = {"memory": f"{group.memory_gib}Gi"}
    if group.gpus:
        limits["nvidia.com/gpu"] = resources["nvidia.com/gpu"] = str(group.gpus)
    return {
        "name": f"ray-{role}",
        "image": choices.engine_image if group.runs_engine else choices.gateway_image,
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "envFrom": [{"secretRef": {"name": f"{choices.name}-env", "optional": True}}],
        "ports": [{"containerPort": port, "name": name} for port, name in all_ports.items()],
        # No limit of CPUs: throttled for a tenth of a second, a gateway holds up every stream.
        "resources": {"requests": resources, "limits": limits},
        "securityContext": _rights(),
        "volumeMounts": _mounts(group, wants),
        # Until Ray's agent answers; images and volumes may be slow the first time. KubeRay adds the others.
        "startupProbe": {
            "httpGet": {"path": "/api/local_raylet_healthz", "port": AGENT_PORT},
            "periodSeconds": 3,
            "timeoutSeconds": 2,
            "failureThreshold": 100,
        },
    }


def _compiles(group: Group) -> bool:
    """Whether vLLM compiles in these pods, which then share what it has compiled."""
    return group.runs_engine and group.name != "head"


def _environment(group: Group, wants: Wants, environment: Mapping[str, str]) -> dict[str, str]:
    own = {
        "HOME": HOME,
        "PROMPTLY_CACHE": CACHE,
        "PROMPTLY_CONFIG_FILE": CONFIG,
        "HF_HOME": WEIGHTS,
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    # In other pods these are in the home folder: without the claim that folder would be in their image, which
    # is read-only.
    compiled = {
        "VLLM_CACHE_ROOT": f"{COMPILED}/vllm",
        "TORCHINDUCTOR_CACHE_DIR": f"{COMPILED}/torchinductor",
        "TRITON_CACHE_DIR": f"{COMPILED}/triton",
        "NUMBA_CACHE_DIR": f"{COMPILED}/numba",
    }
    secret = {"PROMPTLY_SECRETS_FILE": SECRETS} if wants.secrets else {}
    return {**environment, **own, **(compiled if _compiles(group) else {}), **secret}


def _rights() -> Json:
    return {**no_rights(), "readOnlyRootFilesystem": True}


def _copy_secrets(image: str) -> Json:
    return {
        "name": "secrets",
        "image": image,
        "command": ["sh", "-c", COPY_SECRETS],
        "resources": {"requests": {"cpu": "50m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}},
        "securityContext": _rights(),
        "volumeMounts": [
            {"name": "secrets", "mountPath": "/secrets", "readOnly": True},
            {"name": "run", "mountPath": RUN},
        ],
    }


def _mounts(group: Group, wants: Wants) -> list[Json]:
    mounts: list[Json] = [
        {"name": "config", "mountPath": CONFIG, "subPath": "config.yaml", "readOnly": True},
        {"name": "run", "mountPath": RUN},
        {"name": "home", "mountPath": HOME},
        {"name": "tmp", "mountPath": "/tmp"},
        {"name": "shm", "mountPath": "/dev/shm"},
        {"name": "weights", "mountPath": WEIGHTS},
        {"name": "state", "mountPath": CACHE},
    ]
    if _compiles(group):
        mounts.append({"name": "compiled", "mountPath": COMPILED})
    if wants.keys_file:
        mounts.append({"name": "keys", "mountPath": "/etc/promptly/keys", "readOnly": True})
    if wants.tls_files:
        mounts.append({"name": "tls", "mountPath": "/etc/promptly/tls", "readOnly": True})
    return mounts


def _volumes(group: Group, choices: Choices, wants: Wants) -> list[Json]:
    name = choices.name
    # The others keep nothing: stored answers, accounts, responses and feedback belong to one pod.
    state: Json = _claim(f"{name}-state") if group.keeps_files else {"emptyDir": {}}
    volumes: list[Json] = [
        {"name": "config", "configMap": {"name": f"{name}-config"}},
        {"name": "run", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
        {"name": "home", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{group.shared_gib}Gi"}},
        {"name": "weights", **_claim(f"{name}-weights")},
        {"name": "state", **state},
    ]
    if _compiles(group):
        volumes.append({"name": "compiled", **_claim(f"{name}-compiled")})
    if wants.secrets:
        volumes.append({"name": "secrets", "secret": {"secretName": f"{name}-secrets", "defaultMode": 0o440}})
    if wants.keys_file:
        volumes.append({"name": "keys", "secret": {"secretName": f"{name}-keys", "defaultMode": 0o440}})
    if wants.tls_files:
        volumes.append({"name": "tls", "secret": {"secretName": f"{name}-tls", "defaultMode": 0o440}})
    return volumes


def _claim(name: str) -> Json:
    return {"persistentVolumeClaim": {"claimName": name}}


def _affinity(group: Group, choices: Choices) -> Json:
    """Pods of one group on different nodes where there are several; an engine's pods only on nodes with its
    GPUs."""
    found: Json = {}
    if group.products:
        found["nodeAffinity"] = {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [
                            {
                                "key": "nvidia.com/gpu.product",
                                "operator": "In",
                                "values": list(group.products),
                            }
                        ]
                    }
                ]
            }
        }
    if group.most > 1:
        apart = {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": labels_of(group, choices)},
        }
        found["podAntiAffinity"] = {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": apart}]
        }
    return found
