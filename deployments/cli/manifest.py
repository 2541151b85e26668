"""Print what Kubernetes needs to run a config file: a RayService of KubeRay, volume claims, network policies,
disruption budgets, a PodMonitor. It reads the file and the models' shapes; it starts and changes nothing.

    promptly manifest config.yaml --name chat | kubectl apply -f -
    promptly manifest config.yaml --name chat --device H100 --storage-class fast --namespace llm

Keys and other secrets are only named: the commands that make them stand at the top, as comments.
Exit status 1: one message says why, and nothing is printed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import yaml

from deployments.engine.model_files import ModelLibrary
from deployments.engine.sizing import Hardware, plan_applications
from deployments.launcher.config import ConfigError, load_document, secret_variables
from deployments.platform.shipped import shipped_folder
from serve_app.errors import SettingsError
from serve_app.manifests import HEAD_STORAGE_GATE, Choices, check_reachable, environment_of, manifest
from serve_app.manifests.pods import PROXY_FOLDER, folders_without_volume
from serve_app.model_store import ModelStore, default_cache_dir
from serve_app.settings import KeySettings, Settings, load_file
from serve_app.version import VERSION


class Readable(yaml.SafeDumper):
    """Texts of several lines as such: the config within the manifest stays legible."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


Readable.add_representer(str, _text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``promptly manifest``."""
    parser.add_argument("config", type=Path, help="Serve config file")
    parser.add_argument("--name", default="promptly", help="of the RayService; default: promptly")
    parser.add_argument("--namespace", default="default", help="default: default")
    parser.add_argument("--device", help="GPUs of engines that name no accelerator_type, such as H100")
    parser.add_argument("--gpus-per-node", type=int, default=8, help="default: 8")
    parser.add_argument("--storage-class", help="of the volume claims; default: the cluster's")
    parser.add_argument(
        "--gateway-image", default=f"promptly-gateway:{VERSION}", help="for gateways, embedder, cache"
    )
    parser.add_argument(
        "--engine-image", default=f"promptly-engine:{VERSION}", help="for engines and Ray's head"
    )
    parser.add_argument(
        "--spare",
        action="store_true",
        help="one more pod for each model, so that its engines roll without a gap",
    )
    parser.add_argument(
        "--no-pod-monitor",
        action="store_false",
        dest="pod_monitor",
        help="leave out the PodMonitor, which a cluster without Prometheus' operator refuses",
    )
    parser.add_argument(
        "--no-head-storage",
        action="store_false",
        dest="head_storage",
        help=f"leave out the volume of Ray's head, which KubeRay refuses without its feature gate "
        f"{HEAD_STORAGE_GATE}: the application starts anew when the head's pod is replaced",
    )
    parser.add_argument("--offline", action="store_true", help="never ask the hub for a model's shape")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    choices = Choices(
        name=options.name,
        namespace=options.namespace,
        gateway_image=options.gateway_image,
        engine_image=options.engine_image,
        device=options.device,
        gpus_per_node=options.gpus_per_node,
        storage_class=options.storage_class,
        spare=options.spare,
        pod_monitor=options.pod_monitor,
        head_storage=options.head_storage,
    )
    try:
        text = manifest_text(options.config, choices, offline=options.offline)
    except (SettingsError, ConfigError) as error:
        print(error, file=sys.stderr)
        return 1
    print(text, end="")
    return 0


def manifest_text(config: Path, choices: Choices, *, offline: bool) -> str:
    """Raises: SettingsError, ConfigError: one message that says why there is no manifest."""
    document = load_document(config)
    settings, *others = load_file(config)
    if others:
        raise SettingsError(f"{config}: {len(others) + 1} applications: expected one for each RayService")
    check_reachable(document, str(config))
    library = ModelLibrary(ModelStore(default_cache_dir()), offline=offline, recorded=True)
    plans, problems = plan_applications([settings], library, Hardware(choices.device))
    if problems:
        raise SettingsError("\n".join(f"{config}: {problem}" for problem in problems))
    shipped = (shipped_folder() / "cluster.env").read_text(encoding="utf-8")
    secrets = frozenset(secret_variables(document))
    objects = manifest(
        document,
        settings,
        plans,
        choices,
        environment_of(shipped, PROXY_FOLDER),
        secret_variables=secrets,
        ray_version=version("ray"),
    )
    head = "".join(f"# {line}\n" for line in _head(config, choices, settings, secrets))
    return head + yaml.dump_all(objects, Dumper=Readable, sort_keys=False, allow_unicode=True, width=120)


def _head(config: Path, choices: Choices, settings: Settings, secrets: frozenset[str]) -> Iterator[str]:
    yield f"`promptly manifest {config}` of Promptly {VERSION}. Change the config, and make it again."
    if choices.head_storage:
        yield f"KubeRay's operator needs its feature gate {HEAD_STORAGE_GATE}; without: --no-head-storage."
    yield from folders_without_volume(settings)
    make = f"kubectl -n {choices.namespace} create secret generic {choices.name}"
    if isinstance(settings.auth, KeySettings) and settings.auth.keys_file is not None:
        yield f"{make}-keys --from-file=keys.json={settings.auth.keys_file}"
    if secrets:
        names = ", ".join(f'"{name}": "…"' for name in sorted(secrets))
        yield f"{make}-secrets --from-file=secrets.json=FILE   # {{{names}}}"
    proxy = settings.proxy
    named = {
        "tls_certificate": proxy.tls_certificate,
        "tls_key": proxy.tls_key,
        "tls_client_ca": proxy.tls_client_ca,
    }
    files = " ".join(f"--from-file={name}.pem={file}" for name, file in named.items() if file is not None)
    if files:
        yield f"{make}-tls {files}"
    yield "Where wanted, variables of every pod (a hub's token for gated models, a token for /admin):"
    yield f"{make}-env --from-literal=HF_TOKEN=… --from-literal=PROMPTLY_ADMIN_TOKEN=…"
