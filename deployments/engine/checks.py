"""Checks whether an engine can start with its settings, from the files of its model, draft and adapters.

It reads only what is on this node: prepared folders, folders by path, and the hub client's cache. Nothing is
downloaded; models that are not here are left to the engine to check (``promptly plan`` asks the hub).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shutil import disk_usage
from typing import Any

import msgspec

from deployments.engine.model_files import ModelLibrary, SourceError
from deployments.platform.machine import this_machine
from serve_app.engines import (
    AdapterFacts,
    check_adapters,
    check_data_parallel,
    check_depth,
    same_vocabulary,
)
from serve_app.errors import SettingsError
from serve_app.model_store import ModelStore
from serve_app.planning import Device, ModelFiles, Problem
from serve_app.planning.architecture import Architecture, read_architecture
from serve_app.planning.checks import check_draft, check_shape
from serve_app.planning.engine_request import GIB, configured, engine_request
from serve_app.planning.plan import UNKNOWN_CONTEXT
from serve_app.planning.room import Sizing, check_memory
from serve_app.planning.weights import loaded
from serve_app.settings import AutoscalingSettings, EngineSettings, ModelSettings
from serve_app.settings.engine import KV_TRANSFER, LoraSettings

ADAPTER_CONFIG = "adapter_config.json"
SHARED_MEMORY = Path("/dev/shm")
AN_ADAPTER = "use a folder that PEFT saved, or a hub id (owner/name)"
MAPPING = (
    "or set `speculation.use_heterogeneous_vocab: true`: it then drafts only tokens that both have, and a "
    "step costs a mask over its logits and two look-ups more"
)


def check_engine(model: ModelSettings, store: ModelStore, device: Device | None = None) -> None:
    """Check ``model``'s engine settings against the files of its model, draft and adapters, and against the
    memory of ``device`` if one is given.

    Raises:
        SettingsError: one line per problem: setting, value, reason, and what would work.
    """
    problems = list(_problems(model, store, device))
    if problems:
        raise SettingsError("\n".join(f"model {model.id!r}: {problem}" for problem in problems))


def check_on_node(model: ModelSettings, store: ModelStore, *, shared_memory: Path = SHARED_MEMORY) -> None:
    """:func:`check_engine` on the engine's own node; a CPU engine must also fit into its memory, and what a
    GPU engine offloads into ``shared_memory``.

    Raises:
        SettingsError: as :func:`check_engine`.
    """
    on_cpu = model.managed_engine.accelerator == "cpu"
    check_engine(model, store, this_machine() if on_cpu else None)
    for problem in _offload_room(model, shared_memory):
        raise SettingsError(f"model {model.id!r}: {problem}")


def check_devices(model: ModelSettings, numbers: Sequence[int]) -> None:
    """``numbers``: of each worker's device on the node. vLLM gives each worker of an engine that offloads its
    part of the file by this number modulo their count.

    Raises:
        SettingsError: two of them would have one part.
    """
    if len({number % len(numbers) for number in numbers}) == len(numbers):
        return
    shown = ", ".join(map(str, sorted(numbers)))
    problem = Problem(
        "engine.kv_offload",
        f"{len(numbers)} devices with the numbers {shown}",
        f"two of them are equal modulo {len(numbers)}, so vLLM would give them one part of the offloaded "
        "cache, and they would overwrite each other's blocks",
        "engines of one size on a node, so that each gets devices that follow each other; or no `kv_offload`",
    )
    raise SettingsError(f"model {model.id!r}: {problem}")


def _offload_room(model: ModelSettings, shared_memory: Path) -> Iterator[Problem]:
    """vLLM maps the offloaded blocks from a file there (``SharedOffloadRegion``). A container often has
    64 MiB of it, and a write beyond its end kills the engine in mid-request (SIGBUS)."""
    offload = model.managed_engine.kv_offload
    if offload is None or not shared_memory.is_dir():
        return
    free_gib = disk_usage(shared_memory).free / GIB
    if offload.size_gib > free_gib:
        yield Problem(
            "engine.kv_offload.size_gib",
            offload.size_gib,
            f"{shared_memory} of this node has {free_gib:.1f} GiB free, and vLLM keeps the blocks there",
            f"use at most {int(free_gib)}, or give the container more (docker --shm-size; Kubernetes: an "
            "emptyDir of medium Memory)",
        )


def check_served(model: ModelSettings) -> None:
    """Refuse settings that vLLM accepts but that do not work, here or in vLLM itself.

    Raises:
        SettingsError: as :func:`check_engine`.
    """
    problems = list(_not_served_yet(model))
    if problems:
        raise SettingsError("\n".join(f"model {model.id!r}: {problem}" for problem in problems))


def adapter_problems(where: str, lora: LoraSettings, store: ModelStore) -> Iterator[Problem]:
    """The problems of adapters that are on this node, and of paths that do not exist. ``where`` is the
    engine's path in messages."""
    found: dict[str, AdapterFacts] = {}
    for name, source in lora.adapters.items():
        config = _adapter_config(source, store)
        if isinstance(config, str):
            yield Problem(f"{where}.lora.adapters.{name}", source, config, AN_ADAPTER)
        elif config is not None:
            found[name] = AdapterFacts.of(config)
    yield from check_adapters(where, lora, found)


def _not_served_yet(model: ModelSettings) -> Iterator[Problem]:
    """Settings that vLLM accepts but that do not work."""
    engine = model.managed_engine
    if engine.data_parallel_size > 1 and engine.accelerator == "cpu":
        yield Problem(
            "engine.data_parallel_size",
            engine.data_parallel_size,
            "vLLM 0.29 has no exchange among experts on CPUs",
            "1, or `accelerator: gpu`",
        )
    if engine.pipeline_parallel_size > 1 and engine.accelerator == "cpu" and engine.enforce_eager:
        yield Problem(
            "engine.pipeline_parallel_size",
            engine.pipeline_parallel_size,
            "vLLM 0.29's stages on CPUs fail at their first request in eager mode",
            "1, and a larger `tensor_parallel_size`",
        )
    yield from _not_offloaded(engine)
    if engine.data_parallel_size > 1 and isinstance(model.replicas, AutoscalingSettings):
        yield Problem(
            "replicas",
            "autoscaled",
            "the ranks of an engine start and end together, and the policy cannot scale them together",
            "a number of engines",
        )


LMCACHE_SERVERS = "LMCacheMPConnector"
"""vLLM's connector to a server of LMCache's; ``LMCacheConnectorV1`` has its cache in the engine's process."""


def _not_offloaded(engine: EngineSettings) -> Iterator[Problem]:
    offload, prefill = engine.kv_offload, engine.disaggregation
    server = "it needs an LMCache server beside the engine, which Promptly does not start"
    if offload is not None and offload.backend == "lmcache":
        yield Problem("engine.kv_offload.backend", "lmcache", server, "use 'native'")
    if prefill is not None and prefill.connector == "lmcache":
        yield Problem("engine.disaggregation.connector", "lmcache", server, "use 'nixl'")
    transfer = engine.options.get(KV_TRANSFER)
    for connector in _connectors(transfer):
        if connector == LMCACHE_SERVERS:
            works = "leave it out: `kv_offload` and `disaggregation` set vLLM's own connectors"
            yield Problem(f"engine.options.{KV_TRANSFER}", connector, server, works)
    if offload is not None and engine.num_devices > 1 and engine.placement != "strict_pack":
        # CPUOffloadingSpec: rank = device index % world size, in a file of one node.
        yield Problem(
            "engine.placement",
            engine.placement,
            "vLLM gives each device its part of the offloaded cache by its number on the node; on several "
            "nodes two devices have one number, and would overwrite each other's blocks",
            "use 'strict_pack' with `kv_offload`",
        )


def _connectors(transfer: object) -> Iterator[str]:
    """Those that vLLM's ``kv_transfer_config`` names, and those within its ``MultiConnector``."""
    if not isinstance(transfer, Mapping):
        return
    yield str(transfer.get("kv_connector", ""))
    extra = transfer.get("kv_connector_extra_config")
    within = extra.get("connectors") if isinstance(extra, Mapping) else None
    for each in within if isinstance(within, list) else ():
        yield from _connectors(each)


def _problems(model: ModelSettings, store: ModelStore, device: Device | None) -> Iterator[Problem]:
    engine = model.managed_engine
    if engine.lora is not None:
        yield from adapter_problems("engine", engine.lora, store)
    compares = engine.speculation is not None and engine.speculation.method == "draft_model"
    try:
        files = _files(model.managed_source, store, "source", model.revision, vocabulary=compares)
    except SourceError as error:
        yield _of(error)
        return
    if files is None:
        return
    target = read_architecture(configured(files.config, model))
    yield from check_shape("engine", target, engine_request(model), device)
    yield from check_data_parallel("engine", engine, target)
    yield from _draft_problems(model, store, files, target)
    if device is not None and target.is_known:
        yield from _memory_problems(model, files, target, device)


def _memory_problems(
    model: ModelSettings, files: ModelFiles, target: Architecture, device: Device
) -> Iterator[Problem]:
    """Memory problems of the model without its draft, which is small in comparison and checked by ``promptly
    plan``."""
    request = engine_request(model)
    sizing = Sizing(target, loaded(target, files.weights, request), request, device)
    yield from check_memory("engine", sizing, request.max_model_len or target.context or UNKNOWN_CONTEXT)


def _draft_problems(
    model: ModelSettings, store: ModelStore, target_files: ModelFiles, target: Architecture
) -> Iterator[Problem]:
    speculation = model.managed_engine.speculation
    if speculation is None:
        return
    draft, config, same = None, None, None
    if speculation.model is not None:
        compares = speculation.method == "draft_model"
        try:
            files = _files(speculation.model, store, "engine.speculation.model", vocabulary=compares)
        except SourceError as error:
            yield _of(error)
            return
        if files is None:  # not on this node, so it cannot be checked
            return
        draft, config = read_architecture(files.config), files.config
        same = same_vocabulary(target_files.vocabulary, files.vocabulary)
    for problem in check_draft("engine", target, draft, engine_request(model), same):
        yield _with_mapping(problem, speculation.method)
    yield from check_depth("engine", speculation, target, config)


def _with_mapping(problem: Problem, method: str) -> Problem:
    """Add the hint that a draft model with another vocabulary can still be used, at a cost."""
    if method != "draft_model" or problem.setting != "engine.speculation.model":
        return problem
    return Problem(problem.setting, problem.value, problem.reason, f"{problem.works}; {MAPPING}")


def _files(
    source: str, store: ModelStore, field: str, revision: str | None = None, *, vocabulary: bool
) -> ModelFiles | None:
    """The model's files; ``None`` if they are not on this node, or in a form that only the engine reads (a
    single file, a bucket).

    Raises:
        SourceError: a path that does not exist, or broken files.
    """
    if "://" in source or Path(source).expanduser().is_file():
        return None
    try:
        return ModelLibrary(store, offline=True).read(source, revision, field=field, vocabulary=vocabulary)
    except SourceError as error:
        if error.is_remote:
            return None
        raise


def _of(error: SourceError) -> Problem:
    return Problem(error.field, error.source, error.reason, error.works)


def _adapter_config(source: str, store: ModelStore) -> dict[str, Any] | str | None:
    """The adapter's configuration, or the reason why it cannot be read, or ``None`` if it is not on this
    node."""
    folder = Path(store.resolve(source)).expanduser()
    path = folder / ADAPTER_CONFIG
    if not folder.is_dir():
        if "://" in source:
            return None
        if source.startswith(("/", ".", "~")) or source.count("/") > 1:
            return "no such folder"
        cached = _cached(source)
        if cached is None:
            return None
        path = cached
    if not path.is_file():
        return f"the folder has no {ADAPTER_CONFIG}"
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError) as error:
        return f"its {ADAPTER_CONFIG} cannot be read ({error})"


def _cached(repo: str) -> Path | None:
    """The adapter's configuration in the hub client's cache."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(repo, ADAPTER_CONFIG)
    except HFValidationError:
        return None
    return Path(found) if isinstance(found, str) else None
