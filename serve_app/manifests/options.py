"""What a manifest needs and a config file does not say, and which accelerators it knows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from serve_app.errors import SettingsError
from serve_app.planning import device_names, find_device
from serve_app.settings import ModelSettings

PRODUCTS: Mapping[str, tuple[str, ...]] = {
    "H100": ("NVIDIA-H100-80GB-HBM3",),
    "H100-PCIe": ("NVIDIA-H100-PCIe",),
    "H200": ("NVIDIA-H200",),
    "B200": ("NVIDIA-B200",),
    "A100-80G": ("NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-80GB-PCIe"),
    "A100-40G": ("NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-PCIE-40GB"),
    "L40S": ("NVIDIA-L40S",),
    "L4": ("NVIDIA-L4",),
    "A10G": ("NVIDIA-A10G",),
    "T4": ("Tesla-T4",),
    "RTX4090": ("NVIDIA-GeForce-RTX-4090",),
}
"""Values of the node label ``nvidia.com/gpu.product``, which NVIDIA's feature discovery derives from the
driver's name of a GPU, by the plan's name of the device."""

HEAD_STORAGE_GATE = "GCSFaultToleranceEmbeddedStorage"
"""KubeRay's operator refuses the head's volume without it; off by default in 1.7."""

NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
"""KubeRay derives names of pods and services from it, which hold 63 characters."""

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
DEFAULT_HOST = "0.0.0.0"  # Serve's own default
REFERENCE = re.compile(r"\$\{?PROMPTLY_PROXY_FOLDER\}?")


@dataclass(frozen=True, slots=True)
class Choices:
    """``device``: of the plan's table, where engines do not name their ``accelerator_type``.
    ``storage_class``: of all volume claims (``None``: the cluster's default). ``spare``: one more pod for
    each engine group, so that an upgrade starts a replica before it stops one. ``replacement_s``: how long a
    replacement's start may take when a node drains. ``pod_monitor``: for Prometheus' operator.
    ``head_storage``: a volume for the control store of Ray's head, which is a feature gate of KubeRay's."""

    name: str
    namespace: str = "default"
    gateway_image: str = "promptly-gateway"
    engine_image: str = "promptly-engine"
    device: str | None = None
    gpus_per_node: int = 8
    storage_class: str | None = None
    spare: bool = False
    replacement_s: int = 265
    pod_monitor: bool = True
    head_storage: bool = True

    def check(self) -> None:
        """Raises: SettingsError: Kubernetes would refuse the name, or a number makes no sense."""
        for option, value in (("--name", self.name), ("--namespace", self.namespace)):
            if not NAME.fullmatch(value):
                raise SettingsError(
                    f"{option} {value}: expected 1 to 40 lower-case letters, digits, dashes; a letter first"
                )
        if self.gpus_per_node < 1:
            raise SettingsError(f"--gpus-per-node {self.gpus_per_node}: expected 1 or more")

    def products(self, where: str, model: ModelSettings) -> tuple[str, ...]:
        """The labels of the nodes with this engine's GPUs. Raises: SettingsError: the accelerator is
        unknown."""
        asked = model.managed_engine.accelerator_type or self.device
        setting = f"{where}.engine.accelerator_type"
        if asked is None:
            raise SettingsError(
                f"{setting} is missing: a worker group needs to know its GPUs: set it, or give --device "
                f"(one of {', '.join(PRODUCTS)})"
            )
        device = find_device(asked)
        if device is None:
            raise SettingsError(
                f"{setting} = {asked!r}: unknown accelerator; expected one of: {device_names()}"
            )
        if device.name not in PRODUCTS:
            raise SettingsError(
                f"{setting} = {asked!r}: no image here runs on it; expected one of: {', '.join(PRODUCTS)}"
            )
        return PRODUCTS[device.name]


def check_reachable(document: Mapping[str, object], source: str) -> None:
    """Raises: SettingsError: the application would listen where no other pod reaches it."""
    http = document.get("http_options")
    host = http.get("host", DEFAULT_HOST) if isinstance(http, Mapping) else DEFAULT_HOST
    if host in LOOPBACK:
        raise SettingsError(
            f"{source}: http_options.host = {host!r}: no other pod would reach it; "
            "expected '0.0.0.0', and `auth` with keys"
        )


def environment_of(text: str, proxy_folder: str) -> dict[str, str]:
    """The variables of ``config/cluster.env``, with this folder for the proxy's files."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    pairs = (line.partition("=") for line in lines)
    found = {name: "".join(shlex.split(value)) for name, _, value in pairs}
    found["PROMPTLY_PROXY_FOLDER"] = proxy_folder
    return {name: REFERENCE.sub(proxy_folder, value) for name, value in found.items()}
