"""Write a commented config file for this machine: a model that the plan says fits its GPUs, or its memory.

    promptly init                                      promptly.yaml, for this machine
    promptly init server.yaml --device H100 --gpus 2   for another one
    promptly init mine.yaml --example gpu-70b-tp4      a copy of one of the shipped configs

It loads and starts nothing, and never writes over a file. Exit status 1: nothing was written, and the
message says why.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from deployments.engine.model_files import ModelLibrary
from deployments.engine.sizing import Hardware, plan_applications
from deployments.platform.gpus import find_gpus
from deployments.platform.machine import GIB, memory_bytes
from deployments.platform.shipped import shipped_folder
from serve_app.errors import SettingsError
from serve_app.machine import Gpu
from serve_app.machine.choices import LEAST_REQUESTS, Choice, gpu_choices, stand_in
from serve_app.machine.template import cpu_config, gpu_config
from serve_app.model_store import ModelStore, default_cache_dir
from serve_app.planning import Demand, Device, ModelPlan, device_names, find_device, find_reported, report
from serve_app.settings import load_file

DEFAULT_FILE = Path("promptly.yaml")
CPU_EXAMPLE = "local"


class InitError(Exception):
    """Nothing can be written; the message says why."""


@dataclass(frozen=True)
class Target:
    """What to write a config for. ``device`` of the plan's table; ``memory_gib``: of one, where it is not the
    table's. ``about``: in words."""

    gpus: int
    device: Device
    memory_gib: float | None
    about: str

    @property
    def hardware(self) -> Hardware:
        return Hardware(self.device.name, self.memory_gib)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``promptly init``."""
    parser.add_argument("file", type=Path, nargs="?", default=DEFAULT_FILE, help=f"default: {DEFAULT_FILE}")
    parser.add_argument("--device", help=f"another machine's: one of {device_names()}")
    parser.add_argument("--gpus", type=int, help="how many of them")
    parser.add_argument("--example", metavar="NAME", help="copy this shipped config instead")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    try:
        text, about = text_for(options)
        write_new(options.file, text)
    except (InitError, SettingsError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{options.file}: {about}\n\n  promptly doctor {options.file}\n  promptly serve {options.file}")
    return 0


def text_for(options: argparse.Namespace) -> tuple[str, str]:
    """The file's text, and what to say of it. Raises: InitError, SettingsError."""
    if options.example is not None:
        return example(options.example), f"a copy of the shipped config {options.example}"
    target = target_of(options.device, options.gpus, find_gpus())
    if target.device.is_cpu:
        return for_cpu(target, str(options.file)), f"a small model on CPUs, for {target.about}"
    text, choice = for_gpus(target, str(options.file))
    return text, f"{choice.source}, {choice.replicas} × {choice.gpus} GPUs, for {target.about}"


def target_of(device: str | None, gpus: int | None, found: Sequence[Gpu]) -> Target:
    """Raises: InitError: the device is unknown, or its number makes no sense."""
    if gpus is not None and gpus < 1:
        raise InitError(f"--gpus {gpus}: expected 1 or more")
    if device is not None:
        known = find_device(device)
        if known is None:
            raise InitError(f"--device {device}: expected one of: {device_names()}")
        if known.is_cpu:
            return cpu_target()
        return Target(gpus or 1, known, None, f"{gpus or 1} × {known.name}")
    if not found:
        if gpus is not None:
            raise InitError(f"--gpus {gpus}: this machine has no GPU; --device names another machine's")
        return cpu_target()
    least = min(found, key=lambda gpu: gpu.memory_gib)
    count = gpus or len(found)
    about = f"{count} × {least.name} ({least.memory_gib:.1f} GiB each)"
    known = find_reported(least.name)
    if known is not None:
        return Target(count, known, None, about)
    # Not in the plan's table: planned with its own memory, and the speed of a slower one.
    similar = find_device(stand_in(least.capability))
    if similar is None:
        raise InitError(f"{least.name}: the plan knows no similar device")
    return Target(count, similar, least.memory_gib, f"{about}, planned as an {similar.name}")


def cpu_target() -> Target:
    cpu = find_device("cpu")
    if cpu is None:
        raise InitError("the plan's table has no CPU")
    memory = memory_bytes() / GIB
    return Target(0, replace(cpu, memory_gib=memory), memory, f"CPUs ({memory:.0f} GiB of memory)")


def for_cpu(target: Target, file: str) -> str:
    """Raises: InitError: the model does not fit."""
    shipped = example(CPU_EXAMPLE)
    planned = plan_of(shipped, Hardware())
    if isinstance(planned, str):
        raise InitError(f"this machine cannot hold even the smallest model: {planned}")
    return cpu_config(shipped, target.about, file, list(report(planned, Demand())))


def for_gpus(target: Target, file: str) -> tuple[str, Choice]:
    """The largest model that fits. Raises: InitError: none does."""
    why = "no choice"
    for choice in gpu_choices(target.gpus, target.device):
        planned = plan_of(gpu_config(choice, target.about, file, ()), target.hardware)
        if isinstance(planned, str):
            why = planned
        elif planned.memory.tokens and planned.memory.tokens / planned.context >= LEAST_REQUESTS:
            return gpu_config(choice, target.about, file, list(report(planned, Demand()))), choice
    raise InitError(f"no model that `promptly init` knows fits {target.about}: {why}")


def plan_of(text: str, hardware: Hardware) -> ModelPlan | str:
    """The plan of a config's first model, or why it would not work. Models are not asked of the hub: their
    shapes are on record. Raises: SettingsError: the text is no config."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "config.yaml"
        file.write_text(text, encoding="utf-8")
        library = ModelLibrary(ModelStore(default_cache_dir()), offline=True, recorded=True)
        plans, problems = plan_applications(load_file(file), library, hardware)
    return plans[0] if plans and not problems else "; ".join(map(str, problems)) or "nothing to plan"


def example(name: str) -> str:
    """Raises: InitError: there is none of this name."""
    known = {file.stem: file for file in shipped_folder().glob("*.yaml")}
    if name not in known:
        raise InitError(f"--example {name}: expected one of: {', '.join(sorted(known))}")
    return known[name].read_text(encoding="utf-8")


def write_new(file: Path, text: str) -> None:
    """Raises: InitError: the file exists."""
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise InitError(f"{file} exists; name another file, or remove it first") from None
