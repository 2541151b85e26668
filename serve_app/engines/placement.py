"""Whether a cluster has room for the configured replicas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from serve_app.autoscaling.gateways import GROWTH, gateways_for
from serve_app.planning.problems import Problem
from serve_app.settings import AutoscalingSettings, EngineSettings, ModelSettings, Settings

CPU, GPU = "CPU", "GPU"
TOLERANCE = 1e-6
SHARE = 0.001
"""Of a resource that only says where a part may run: a node with one of it has room for a thousand parts."""

PLENTY = 1 << 20
"""Stands for any number: replicas that take no resources always fit."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The replicas of a model; ``each`` is what one takes, by Ray's resource names."""

    setting: str
    replicas: int
    each: Mapping[str, float]


def check_placement(settings: Settings, resources: Mapping[str, float]) -> Iterator[Problem]:
    """Check that all replicas fit into ``resources``, the totals of the cluster by Ray's names. For an
    autoscaled model, ``replicas.min`` must fit. The distribution over nodes is not checked."""
    left = dict(resources)
    for name, amount in _around_engines(settings).items():
        left[name] = left.get(name, 0.0) - amount
        if left[name] < -TOLERANCE:
            yield _too_much_around(settings, name, amount, resources)
            left[name] = resources.get(name, 0.0)  # engines are named only if they would not fit either
    for wanted in _wanted(settings):
        room = _room(wanted.each, left)
        if wanted.replicas > room:
            yield _too_many(wanted, resources, left, room)
        for name, amount in wanted.each.items():
            left[name] = left.get(name, 0.0) - amount * min(wanted.replicas, room)


def needed(settings: Settings) -> dict[str, float]:
    """What all replicas take together, by Ray's names, with as few of them as there may be."""
    total = _around_engines(settings)
    for wanted in _wanted(settings):
        for name, amount in wanted.each.items():
            total[name] = total.get(name, 0.0) + wanted.replicas * amount
    return total


def resources_of(engine: EngineSettings) -> dict[str, float]:
    """What one replica takes: its devices, and CPUs for each data-parallel rank itself."""
    ranks, devices = engine.data_parallel_size, engine.num_devices
    where = {} if engine.nodes is None else {engine.nodes: ranks * devices * SHARE}
    if engine.accelerator == "cpu":
        return {CPU: ranks * (engine.num_cpus + devices), **where}
    return {GPU: float(ranks * devices), CPU: ranks * engine.num_cpus, **where}


def only_on(resource: str | None) -> dict[str, dict[str, float]]:
    """Ray's options of an actor that runs only on nodes with ``resource``; without one, on any."""
    return {} if resource is None else {"resources": {resource: SHARE}}


def gateway_bounds(settings: Settings) -> tuple[int, int]:
    """The fewest and the most gateways. Without `gateway.replicas` they follow from the GPUs of all engines,
    with as few and as many replicas as there may be; prefill engines write no tokens."""
    gateway = settings.gateway
    if "replicas" in gateway.model_fields_set:
        return gateway.replicas, gateway.max_replicas or gateway.replicas
    fewest, most = _gpus(settings)
    least = gateways_for(fewest)
    expected = gateways_for(most) * (GROWTH if most else 1)
    highest = expected if gateway.max_replicas is None else gateway.max_replicas
    return min(least, highest), highest


def _gpus(settings: Settings) -> tuple[int, int]:
    fewest = most = 0
    for model in settings.models:
        if model.engine is not None and model.engine.accelerator == "gpu":
            each = model.engine.data_parallel_size * model.engine.num_devices
            least, highest = model.replica_bounds
            fewest, most = fewest + least * each, most + highest * each
    return fewest, most


def _wanted(settings: Settings) -> Iterator[_Wanted]:
    for index, model in enumerate(settings.models):
        if model.engine is not None:
            each = resources_of(model.engine)
            yield _replicas(f"models[{index}]", model, each)
            apart = model.engine.disaggregation
            if apart is not None:
                where = f"models[{index}].engine.disaggregation.prefill_replicas"
                yield _Wanted(where, apart.prefill_replicas, each)


def _replicas(where: str, model: ModelSettings, each: Mapping[str, float]) -> _Wanted:
    if isinstance(model.replicas, AutoscalingSettings):
        return _Wanted(f"{where}.replicas.min", model.replicas.min, each)
    return _Wanted(f"{where}.replicas", model.replicas, each)


def _around_engines(settings: Settings) -> dict[str, float]:
    """What gateways, embedders and the owners of files take."""
    taken = {CPU: gateway_bounds(settings)[0] * settings.gateway.num_cpus, GPU: 0.0}
    if settings.embedder is not None:
        taken[CPU] += settings.embedder.replicas * settings.embedder.num_cpus
        taken[GPU] += settings.embedder.replicas if settings.embedder.device == "cuda" else 0
    if settings.cache is not None:
        taken[CPU] += settings.cache.shards * settings.cache.num_cpus
    if settings.responses.enabled:
        taken[CPU] += settings.responses.num_cpus
    taken[CPU] += sum(each.num_cpus for each in (settings.accounts, settings.feedback) if each is not None)
    for name in filter(None, (settings.nodes.front, settings.nodes.files)):
        taken[name] = SHARE
    return taken


def _too_much_around(settings: Settings, name: str, amount: float, resources: Mapping[str, float]) -> Problem:
    """Without room for these no request is answered, whatever the engines have."""
    for part in ("front", "files"):
        if name == getattr(settings.nodes, part):
            needs = f"no node of the cluster has the resource {name!r}"
            return Problem(f"nodes.{part}", name, needs, "start one with it (`ray start --resources`)")
    setting, value = "gateway.replicas", gateway_bounds(settings)[0]
    if name == GPU and settings.embedder is not None:
        setting, value = "embedder.replicas", settings.embedder.replicas
    has = resources.get(name, 0.0)
    lacking = needed(settings)[name] - has
    all_of_it = ", engines included" if lacking > amount - has + TOLERANCE else ""
    reason = f"gateways, embedders and owners of files take {amount:g} {name}, and the cluster has {has:g}"
    return Problem(
        setting, value, reason, f"use fewer or smaller ones, or add nodes with {lacking:g} {name}{all_of_it}"
    )


def _room(each: Mapping[str, float], left: Mapping[str, float]) -> int:
    """How many replicas fit. The small tolerance is needed because fractions of a CPU do not add up
    exactly."""
    rooms = [int((left.get(name, 0.0) + TOLERANCE) // amount) for name, amount in each.items() if amount > 0]
    return max(min(rooms, default=PLENTY), 0)


def _too_many(
    wanted: _Wanted, resources: Mapping[str, float], left: Mapping[str, float], room: int
) -> Problem:
    name = min(
        (name for name, amount in wanted.each.items() if amount > 0),
        key=lambda name: left.get(name, 0.0) / wanted.each[name],
    )
    reason = (
        f"each takes {wanted.each[name]:g} {name}, and of the cluster's {resources.get(name, 0.0):g} {name} "
        f"{max(left.get(name, 0.0), 0.0):g} are left for them"
    )
    more = f"add nodes with {wanted.each[name] * wanted.replicas - max(left.get(name, 0.0), 0.0):g} {name}"
    return Problem(
        wanted.setting, wanted.replicas, reason, f"use at most {room}, or {more}" if room else more
    )
