"""What was read of a machine, and what is asked of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["cpu", "gpu"]
Hub = Literal["answers", "off", "silent"]
"""Whether the model hub answers; ``off``: the environment or an option says not to ask it."""


@dataclass(frozen=True)
class Gpu:
    """One GPU as its driver reports it. ``capability``: compute capability, such as 9.0; ``memory_gib``: its
    whole memory."""

    name: str
    driver: str
    capability: float
    memory_gib: float


@dataclass(frozen=True)
class Facts:
    """Sizes are bytes.

    ``packages``: installed versions by name, of those that a check asks for. ``has_gpu_device``: the kernel
    shows an NVIDIA GPU. ``shared_free``: ``None`` without ``/dev/shm``. ``port_holder``: who listens on the
    wanted port, ``None`` if it is free. ``absent_models``: those of the config that are no folder here.
    ``broken``: packages beside torch that do not import. ``absent_commands``: paths of Ray's own commands,
    which a start runs.
    ``open_files``: the hard limit of a process. ``from_checkout``: the modules come from a checkout.
    """

    python: tuple[int, int]
    python_path: str
    has_headers: bool
    has_compiler: bool
    packages: Mapping[str, str]
    haproxy: str | None
    gpus: tuple[Gpu, ...]
    has_gpu_device: bool
    memory: int
    shared_free: int | None
    port_holder: str | None
    hub: Hub
    hub_url: str
    cache_dir: str
    disk_free: int
    open_files: int
    from_checkout: bool
    python_is_optimized: bool = True
    absent_models: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    absent_commands: tuple[str, ...] = ()

    @property
    def kind(self) -> Kind:
        """On what engines run unless a config says otherwise."""
        return "gpu" if self.gpus or self.has_gpu_device else "cpu"


@dataclass(frozen=True)
class Wants:
    """What a config asks of its machine. ``engines``: on what its engines run; empty: it has none."""

    engines: frozenset[Kind] = field(default_factory=frozenset)
    port: int = 8000

    @property
    def on_gpu(self) -> bool:
        return "gpu" in self.engines
