"""The plan of one model, and of all models on one cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from serve_app.planning.architecture import Architecture, Config, read_architecture
from serve_app.planning.checks import check_draft, check_shape
from serve_app.planning.engine_request import EngineRequest, configured, engine_request
from serve_app.planning.hardware import Device
from serve_app.planning.load import Engine
from serve_app.planning.memory import Memory
from serve_app.planning.notes import notes
from serve_app.planning.problems import Problem
from serve_app.planning.room import Sizing, check_memory
from serve_app.planning.speed import USUAL, Efficiency, Speed, speed
from serve_app.planning.weights import Groups, StoredWeights, loaded
from serve_app.settings import ModelSettings

UNKNOWN_CONTEXT = 2048
"""What vLLM assumes if a config has no length."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """What is known about a model without loading it: ``config.json``, the weights' headers or index
    (``None``: there are no weight files), and the tokenizer's vocabulary, token to id (empty: not read).
    ``recorded``: the day of Promptly's own record, if the config is from there."""

    config: Config
    weights: StoredWeights | None = None
    vocabulary: Mapping[str, int] = field(default_factory=dict)
    recorded: str | None = None


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """One model on one kind of device. ``where`` is its path in the settings, ``context`` the longest
    request in tokens. ``speed`` is ``None`` if the device or the shape is unknown."""

    where: str
    id: str
    source: str
    device: Device | None
    request: EngineRequest
    architecture: Architecture
    groups: Groups
    memory: Memory
    speed: Speed | None
    context: int
    min_replicas: int
    max_replicas: int
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]

    @property
    def engine(self) -> Engine | None:
        """One replica for the queueing model; ``None`` if memory or speed is unknown."""
        tokens = self.memory.tokens
        if self.speed is None or not tokens:
            return None
        sequences = self.request.sequences(self.device)
        return Engine(self.speed, sequences, tokens, self.request.batched_tokens(self.device))


def plan_model(
    index: int,
    model: ModelSettings,
    files: ModelFiles,
    draft: ModelFiles | None = None,
    device: Device | None = None,
    *,
    same_tokenizer: bool | None = None,
    efficiency: Efficiency = USUAL,
) -> ModelPlan:
    """Plan one model. ``index`` is its position in the settings, ``draft`` the files of
    ``speculation.model``; ``same_tokenizer``: whether both have the same vocabulary (``None``: not compared).
    The model must have managed replicas."""
    where = f"models[{index}]"
    request = engine_request(model)
    architecture = read_architecture(configured(files.config, model))
    groups = loaded(architecture, files.weights, request)
    draft_shape = None if draft is None else read_architecture(draft.config)
    sizing = Sizing(
        architecture, groups, request, device, draft_shape, None if draft is None else draft.weights
    )
    context = request.max_model_len or architecture.context or UNKNOWN_CONTEXT
    problems = (
        *check_shape(f"{where}.engine", architecture, request, device),
        *check_draft(f"{where}.engine", architecture, draft_shape, request, same_tokenizer),
        *check_memory(f"{where}.engine", sizing, context),
    )
    fewest, most = model.replica_bounds
    return ModelPlan(
        where=where,
        id=model.id,
        source=model.managed_source,
        device=device,
        request=request,
        architecture=architecture,
        groups=groups,
        memory=sizing.memory(),
        speed=None if device is None else speed(architecture, groups, request, device, efficiency),
        context=context,
        min_replicas=fewest,
        max_replicas=most,
        problems=problems,
        notes=(
            *_recorded(files, draft),
            *notes(architecture, request, device, files.weights is None, draft_shape),
        ),
    )


def _recorded(files: ModelFiles, draft: ModelFiles | None) -> Iterator[str]:
    days = {name: found.recorded for name, found in (("model", files), ("draft", draft)) if found is not None}
    taken = {name: day for name, day in days.items() if day is not None}
    if taken:
        yield (
            f"The shape of the {' and the '.join(taken)} is from Promptly's record of {min(taken.values())}: "
            "neither this machine nor a hub that can be reached has it."
        )


def check_cluster(plans: Sequence[ModelPlan], gpus: int) -> Iterator[Problem]:
    """All replicas together must fit into ``gpus`` devices. Models on CPUs take none."""
    on_gpus = [plan for plan in plans if not plan.request.on_cpu]
    left = gpus
    for position, plan in enumerate(on_gpus):
        devices = plan.request.devices
        left -= plan.request.prefill_replicas * devices
        # Reserve the minimum of the models that follow.
        others = sum(_fewest_devices(later) for later in on_gpus[position + 1 :])
        room = max(left - others, 0) // devices
        if plan.max_replicas > room:
            yield _no_room(plan, gpus, room)
        left -= devices * min(plan.max_replicas, room)


def _fewest_devices(plan: ModelPlan) -> int:
    return (plan.min_replicas + plan.request.prefill_replicas) * plan.request.devices


def _for_prefill(plan: ModelPlan) -> str:
    more = plan.request.prefill_replicas * plan.request.devices
    return f", and the prefill replicas {more} more" if more else ""


def _no_room(plan: ModelPlan, gpus: int, room: int) -> Problem:
    devices = plan.request.devices
    scaled = plan.min_replicas != plan.max_replicas
    return Problem(
        f"{plan.where}.replicas.max" if scaled else f"{plan.where}.replicas",
        plan.max_replicas,
        f"{plan.max_replicas} replicas of {devices} GPUs need {plan.max_replicas * devices}"
        f"{_for_prefill(plan)}, "
        f"and the cluster has {gpus} for all models",
        f"use at most {room}" if room else f"use fewer GPUs per replica, or a cluster of {gpus + devices}",
    )
