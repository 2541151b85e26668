"""Which pods a config needs: the size and number of each kind. CPUs and memory are rules of thumb, not
measured on Kubernetes; GPUs follow from the settings and the plan."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from serve_app.engines.placement import CPU, gateway_bounds, resources_of
from serve_app.errors import SettingsError
from serve_app.manifests.options import Choices
from serve_app.planning import ModelPlan
from serve_app.settings import EngineSettings, ModelSettings, Settings
from serve_app.settings.nodes import shared_name

GIB = 1 << 30
BESIDE_GPUS = 4
"""CPUs of an engine's pod besides two for each GPU: vLLM's server, its scheduler, Ray, HAProxy."""

BASE_GIB, GPU_GIB = 16, 8
"""Host memory of an engine's pod: for processes, and for each GPU (pinned buffers, a shard being read)."""

SHARED_GIB = 8
"""``/dev/shm`` of an engine's pod: NCCL's, vLLM's message queues, Ray's objects."""

FRONT_SHARED_GIB = 2
GATEWAY_GIB, EMBEDDER_GIB, KEEPER_GIB = 1.0, 2.0, 1.0
KEEPER_CPUS = 0.5
"""Each of cache, responses, accounts and feedback."""

KEEPER_DRAIN_S = 15.0
FRONT, FILES = "front", "files"
NODES = {FRONT: "promptly_front", FILES: "promptly_files"}
"""Ray's resources of the pods that are not for engines, where the config names none (``nodes``)."""

OTHER_CPUS, OTHER_GIB = 1.5, 2.0
"""Ray and HAProxy of one pod."""


@dataclass(frozen=True, slots=True)
class Group:
    """Equal pods. ``logical_cpus``: what Ray may hand out of it. ``hosts``: pods that one engine spans.
    ``products``: labels of the nodes' GPUs; none: no GPU. ``drain_s``: what its slowest replica needs to
    stop. ``only``: Ray's resource of parts that run in no other pods. ``accelerator``: Ray's resource of a
    kind of GPU. ``spare``: how many of the least have no replica. ``model``: whose engine, by its place in
    the config."""

    name: str
    least: int
    most: int
    cpus: int
    memory_gib: int
    shared_gib: int
    logical_cpus: int
    drain_s: float
    gpus: int = 0
    hosts: int = 1
    products: tuple[str, ...] = ()
    runs_engine: bool = True
    only: str | None = None
    accelerator: str | None = None
    model: int | None = None
    spare: int = 0

    @property
    def serving(self) -> int:
        """The fewest pods whose proxy answers. Of an engine's hosts it is the one with Serve's replica."""
        return self.least - self.spare

    @property
    def keeps_files(self) -> bool:
        return self.name == FILES


def node_names(settings: Settings) -> dict[str, str]:
    """The resource of each kind of pod, as the config names it or as the manifest does. Owners of files have
    one where there are any. Raises: SettingsError: the manifest's name for one is the config's for the
    other."""
    chosen = {FRONT: settings.nodes.front, FILES: settings.nodes.files}
    kinds = [FRONT, *([FILES] if list(_keepers(settings)) else [])]
    names = {kind: chosen[kind] or NODES[kind] for kind in kinds}
    if names[FRONT] == names.get(FILES):
        raise SettingsError(f"nodes: {shared_name(names[FILES])}")
    return names


def groups(settings: Settings, plans: Sequence[ModelPlan], choices: Choices) -> tuple[Group, ...]:
    """The front, the owners of files, and one group for each model with engines. Raises: SettingsError: an
    accelerator is unknown, an engine does not divide into nodes, or two groups have one name."""
    by_place = {plan.where: plan for plan in plans}
    engines = [
        replace(_engines(f"models[{index}]", model, by_place.get(f"models[{index}]"), choices), model=index)
        for index, model in enumerate(settings.models)
        if model.engine is not None
    ]
    names = node_names(settings)
    files = [_files(settings, names[FILES])] if FILES in names else []
    alone = len(engines) == 1
    apart = [replace(group, only=_engine_nodes(settings, group, alone)) for group in _apart(engines)]
    made = (_front(settings, names[FRONT]), *files, *apart)
    _require_own_names(made)
    return made


def _require_own_names(made: Sequence[Group]) -> None:
    """Raises: SettingsError: Ray could place one group's parts in another's pods: owners of files where
    folders are lost, engines in an image without vLLM or on a larger engine's GPUs."""
    by_name: dict[str, str] = {}
    for group in made:
        if group.only is not None and (other := by_name.setdefault(group.only, group.name)) != group.name:
            raise SettingsError(
                f"nodes: the pods of {other!r} and {group.name!r} would both be {group.only!r}; give each a "
                "name of its own (`nodes.front`, `nodes.files`, `engine.nodes`), or none"
            )


def _engine_nodes(settings: Settings, group: Group, alone: bool) -> str | None:
    """The resource of this engine's pods, as the config names it or as the manifest does. Ray places a
    replica wherever its GPUs are free, by preference where more stay free: a small engine would take a part
    of a large one's pod, which then starts nowhere. One without GPUs would start beside the gateways, in an
    image without vLLM."""
    assert group.model is not None
    chosen = settings.models[group.model].managed_engine.nodes
    if chosen is not None or (alone and group.gpus):
        return chosen
    return f"promptly_{group.name}".replace("-", "_")


def drain_s(model: ModelSettings) -> float:
    """How long Serve waits for a replica of this model (deployments/graph.py adds the same margin)."""
    return model.drain_timeout_s + 15.0


def _engines(where: str, model: ModelSettings, plan: ModelPlan | None, choices: Choices) -> Group:
    engine = model.managed_engine
    ranks = engine.data_parallel_size
    prefill = 0 if engine.disaggregation is None else engine.disaggregation.prefill_replicas
    least, most = model.replica_bounds
    spare = ranks if choices.spare else 0
    pods = (least * ranks + prefill + spare, most * ranks + prefill + spare)
    logical = math.ceil(resources_of(engine)[CPU] / ranks) + 1
    if engine.accelerator == "cpu":
        weights = 0.0 if plan is None else plan.memory.weights / GIB
        memory = math.ceil(weights + (engine.cpu_kv_cache_gib or 4) + OTHER_GIB + 2)
        cpus = max(4, engine.num_devices)
        return Group(_name(model.id), *pods, cpus, memory, 2, logical, drain_s(model), spare=spare)
    hosts = math.ceil(engine.num_devices / choices.gpus_per_node)
    if engine.num_devices % hosts:
        raise SettingsError(
            f"{where}.engine: {engine.num_devices} GPUs do not divide into {hosts} nodes of "
            f"{choices.gpus_per_node}; change the parallel sizes, or give --gpus-per-node"
        )
    gpus = engine.num_devices // hosts
    offload = 0 if engine.kv_offload is None else math.ceil(engine.kv_offload.size_gib)
    return Group(
        _name(model.id),
        *pods,
        BESIDE_GPUS + 2 * gpus,
        BASE_GIB + GPU_GIB * gpus + SHARED_GIB + offload,
        SHARED_GIB + offload,
        logical,
        drain_s(model),
        gpus=gpus,
        hosts=hosts,
        products=choices.products(where, model),
        accelerator=_type_of(engine),
        spare=spare,
    )


def _type_of(engine: EngineSettings) -> str | None:
    """Ray finds the GPUs of a node that runs. Its autoscaler asks for no pod whose group does not say that it
    has them."""
    return None if engine.accelerator_type is None else f"accelerator_type:{engine.accelerator_type}"


def _front(settings: Settings, only: str) -> Group:
    """Gateways and embedder. Two pods where there are two gateways. Raises: SettingsError: the embedder needs
    a GPU."""
    if settings.embedder is not None and settings.embedder.device == "cuda":
        raise SettingsError(
            "embedder.device = 'cuda': the pods of `front` have no GPU, their image no CUDA; expected 'cpu'"
        )
    _, most = gateway_bounds(settings)
    pods = min(2, most)
    embedders = 0 if settings.embedder is None else settings.embedder.replicas
    threads = 0 if settings.embedder is None else settings.embedder.threads
    cpus = most + embedders * threads
    memory = most * GATEWAY_GIB + embedders * EMBEDDER_GIB
    logical = most * settings.gateway.num_cpus + embedders
    return Group(
        FRONT,
        pods,
        pods,
        math.ceil(cpus / pods + OTHER_CPUS),
        math.ceil(memory / pods + OTHER_GIB + FRONT_SHARED_GIB),
        FRONT_SHARED_GIB,
        # Room for all of it in one pod, when the other is gone, and for what a roll starts beside.
        math.ceil(2 * logical) + 1,
        max(map(drain_s, settings.models)),
        runs_engine=False,
        only=only,
    )


def _files(settings: Settings, only: str) -> Group:
    """The owners of files: one pod, as one process writes a file and its volume has one node."""
    keepers = sum(1 for _ in _keepers(settings))
    return Group(
        FILES,
        1,
        1,
        math.ceil(keepers * KEEPER_CPUS + OTHER_CPUS),
        math.ceil(keepers * KEEPER_GIB + OTHER_GIB + FRONT_SHARED_GIB),
        FRONT_SHARED_GIB,
        math.ceil(sum(_keepers(settings))) + 1,
        KEEPER_DRAIN_S,
        runs_engine=False,
        only=only,
    )


def _keepers(settings: Settings) -> Iterator[float]:
    """The CPUs that Ray counts for each owner of files."""
    if settings.cache is not None:
        yield from [settings.cache.num_cpus] * settings.cache.shards
    for section in (settings.accounts, settings.feedback):
        if section is not None:
            yield section.num_cpus
    if settings.responses.enabled:
        yield settings.responses.num_cpus


def _apart(engines: Sequence[Group]) -> Iterator[Group]:
    """KubeRay tells groups apart by their names, and two models may have one: the later gets a number."""
    taken = {group.name for group in engines}
    seen: set[str] = set()
    for group in engines:
        name, number = group.name, 1
        while name in seen or (number > 1 and name in taken):
            number += 1
            name = f"{group.name}-{number}"
        seen.add(name)
        yield replace(group, name=name)


def _name(model: str) -> str:
    """A model's id as the name of a group: KubeRay makes names and labels of pods of it."""
    plain = re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")[:30].rstrip("-")
    return f"engine-{plain}" if plain else "engine"
