"""Sizes the engines of settings by their models' files: for ``promptly plan``, and for the gateway's
``/admin/plan``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deployments.engine.model_files import ModelLibrary, SourceError
from deployments.engine.parsers import model_parsers
from deployments.platform.machine import this_machine
from serve_app.engines import check_data_parallel, check_depth, same_vocabulary
from serve_app.errors import SettingsError
from serve_app.model_store import ModelStore, default_cache_dir
from serve_app.planning import (
    USUAL,
    Device,
    Efficiency,
    ModelFiles,
    ModelPlan,
    Problem,
    device_names,
    find_device,
    plan_model,
)
from serve_app.planning.question import Question
from serve_app.planning.shown import shown, shown_problem, unknown_model
from serve_app.settings import ModelSettings, Settings


@dataclass(frozen=True, slots=True)
class Hardware:
    """The device to plan for. Without ``name``, each engine's ``accelerator_type`` is used; without
    ``memory_gib``, the table's value."""

    name: str | None = None
    memory_gib: float | None = None
    efficiency: Efficiency = USUAL


def plan_applications(
    applications: Sequence[Settings], library: ModelLibrary, hardware: Hardware
) -> tuple[list[ModelPlan], list[Problem]]:
    """A plan for each model that can be read, and all problems.

    Raises:
        SettingsError: ``hardware`` names an unknown device.
    """
    plans: list[ModelPlan] = []
    problems: list[Problem] = []
    for settings in applications:
        for index, model in managed_models(settings):
            try:
                plan = _plan(index, model, library, hardware)
            except SourceError as error:
                problems.append(_source_problem(index, error))
                continue
            plans.append(plan)
            problems += plan.problems
    return plans, problems


def managed_models(settings: Settings) -> Iterator[tuple[int, ModelSettings]]:
    """The models with engines of their own, with their positions in the settings."""
    return ((index, model) for index, model in enumerate(settings.models) if model.engine is not None)


def _source_problem(index: int, error: SourceError) -> Problem:
    return Problem(f"models[{index}].{error.field}", error.source, error.reason, error.works)


def _plan(index: int, model: ModelSettings, library: ModelLibrary, hardware: Hardware) -> ModelPlan:
    """Raises: SourceError: the model or its draft cannot be read."""
    speculation = model.managed_engine.speculation
    compares = speculation is not None and speculation.method == "draft_model"
    device = _device(model, hardware)
    files = library.read(model.managed_source, model.revision, vocabulary=compares)
    draft = None
    if speculation is not None and speculation.model is not None:
        draft = library.read(speculation.model, field="engine.speculation.model", vocabulary=compares)
    same = None if draft is None else same_vocabulary(files.vocabulary, draft.vocabulary)
    plan = plan_model(index, model, files, draft, device, same_tokenizer=same, efficiency=hardware.efficiency)
    return replace(plan, problems=(*plan.problems, *_engine_problems(plan, model, draft)))


def _engine_problems(plan: ModelPlan, model: ModelSettings, draft: ModelFiles | None) -> Iterator[Problem]:
    where, engine = f"{plan.where}.engine", model.managed_engine
    yield from check_data_parallel(where, engine, plan.architecture)
    if engine.speculation is not None:
        config = None if draft is None else draft.config
        yield from check_depth(where, engine.speculation, plan.architecture, config)


def _device(model: ModelSettings, hardware: Hardware) -> Device | None:
    """The device to plan for; ``None`` if neither the options nor the settings name a known one. Raises:
    SettingsError: ``--device`` is unknown, or not of the engine's kind."""
    engine = model.managed_engine
    _require_kind(model, hardware.name)
    if engine.accelerator == "cpu":
        device = this_machine()
    else:
        name = hardware.name or engine.accelerator_type
        device = None if name is None else find_device(name)
    if device is not None and hardware.memory_gib is not None:
        return replace(device, memory_gib=hardware.memory_gib)
    return device


def _require_kind(model: ModelSettings, name: str | None) -> None:
    """Refuse a device of the other kind: an engine's settings are either for GPUs or for CPUs."""
    if name is None:
        return
    asks_cpu, on_cpu = name.lower() == "cpu", model.managed_engine.accelerator == "cpu"
    if not asks_cpu and find_device(name) is None:
        raise SettingsError(f"--device {name}: expected one of: cpu, {device_names()}")
    if asks_cpu != on_cpu:
        kind = "CPUs (engine.accelerator: cpu)" if on_cpu else "GPUs (engine.accelerator: gpu)"
        raise SettingsError(
            f"--device {name}: the model {model.id!r} runs on {kind}; "
            f"plan it with --set engine.accelerator={'gpu' if on_cpu else 'cpu'}, or without --device"
        )


def running_plan(settings: Settings, question: Question) -> dict[str, Any]:
    """The plan of the running settings, for ``/admin/plan``. Models are read from this machine only: no hub
    is asked. It reads files and computes for up to seconds: call it in a thread.

    Raises:
        SettingsError: the question names an unknown device.
    """
    store = ModelStore(default_cache_dir())
    library = ModelLibrary(store, offline=True, recorded=True)
    return {
        "models": [
            _shown_model(index, model, library, store, question) for index, model in managed_models(settings)
        ],
        "others": [model.id for model in settings.models if model.engine is None],
    }


def _shown_model(
    index: int, model: ModelSettings, library: ModelLibrary, store: ModelStore, question: Question
) -> dict[str, Any]:
    name = None if model.managed_engine.accelerator == "cpu" else question.device
    try:
        plan = _plan(index, model, library, Hardware(name))
    except SourceError as error:
        if error.is_remote:
            return unknown_model(index, model, error.source, str(store.folder(error.source)))
        return unknown_model(index, model, error.source) | {
            "problems": [shown_problem(_source_problem(index, error))]
        }
    return shown(plan, question.demand) | {"parsers": model_parsers(model, store).lines()}
