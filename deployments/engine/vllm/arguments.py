"""Translates settings to vLLM's and Ray's arguments, and checks them against the installed vLLM.

Checked against vLLM 0.29 and Ray 2.60. When vLLM moves, look at: ``SpeculativeConfig``'s
``num_speculative_tokens_per_batch_size`` and ``use_heterogeneous_vocab``, ``BaseFrontendArgs.lora_modules``,
``EngineArgs.kv_offloading_size``.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib.util
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError

from deployments.engine.parsers import model_parsers
from serve_app.engines.placement import SHARE
from serve_app.errors import SettingsError
from serve_app.model_store import ModelStore
from serve_app.planning.execution import schedules_depths, sends_depths
from serve_app.settings import EngineSettings, ModelSettings, SpeculationSettings
from serve_app.settings.engine import (
    DEPTH_CAN_CHANGE,
    KV_TRANSFER,
    OWN_SETTING,
    READS_THE_TEXT,
    DepthStep,
    LoraSettings,
)

MOST_REQUESTS = 1 << 20
"""The end of the last range of a depth schedule; above any ``max_num_seqs``."""

SUFFIX_PACKAGE = "arctic_inference"
CONNECTORS = {"nixl": "NixlConnector", "lmcache": "LMCacheConnectorV1"}
GUARDED_SCHEDULER = "deployments.engine.vllm.guarded_scheduler.guarded_scheduler"
DEPTH_SCHEDULER = "deployments.engine.vllm.guarded_scheduler.depth_scheduler"
EAGER_WORKER = "deployments.engine.vllm.eager_worker.EagerWorker"
DEVICE_NUMBER = "deployments.engine.vllm.device_number.DeviceNumber"
WORKER_EXTENSION = "worker_extension_cls"
DEPTHS = "promptly_depth_by_load"
"""The key of vLLM's ``additional_config`` from which these schedulers read ``depth_by_load`` if vLLM's own
setting must stay unset (see :func:`serve_app.planning.execution.sends_depths`)."""

NO_DOMAIN = "none: send media as data: URLs"
"""Matches no host. For vLLM an empty list means "any host": it would fetch every address that a request
names."""

NOT_CHECKABLE = (PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError, NameError)
"""Errors for vLLM types that pydantic cannot validate, such as plain classes."""


def engine_arguments(model: ModelSettings, store: ModelStore) -> dict[str, Any]:
    """vLLM's arguments, those of its HTTP server included; unset ones keep vLLM's defaults."""
    engine = model.managed_engine
    named = {
        "revision": model.revision,
        "tensor_parallel_size": engine.tensor_parallel_size,
        "pipeline_parallel_size": engine.pipeline_parallel_size,
        "data_parallel_size": engine.data_parallel_size if engine.data_parallel_size > 1 else None,
        "enable_expert_parallel": engine.enable_expert_parallel or None,
        "dtype": engine.dtype,
        "max_model_len": engine.max_model_len,
        "max_num_seqs": engine.max_num_seqs,
        "max_num_batched_tokens": engine.max_num_batched_tokens,
        "enable_chunked_prefill": engine.enable_chunked_prefill,
        "long_prefill_token_threshold": engine.long_prefill_token_threshold,
        "scheduling_policy": engine.scheduling_policy,
        "gpu_memory_utilization": engine.gpu_memory_utilization,
        "quantization": engine.quantization,
        "kv_cache_dtype": engine.kv_cache_dtype,
        "enable_prefix_caching": engine.enable_prefix_caching,
        "allowed_media_domains": list(engine.allowed_media_domains) or [NO_DOMAIN],
        "enforce_eager": engine.enforce_eager,
        "optimization_level": engine.optimization_level,
        "performance_mode": engine.performance_mode,
        "enable_sleep_mode": engine.enable_sleep_mode or _sleeps_on_gpu(model) or None,
        "speculative_config": speculative_config(engine.speculation, store, with_depths=sends_depths(engine)),
        "per_request_spec_decode_metrics": None if engine.speculation is None else "summary",
        "scheduler_cls": _scheduler(engine),
        "worker_cls": EAGER_WORKER if _is_eager_on_cpus(engine) else None,
    }
    given = {name: value for name, value in named.items() if value is not None}
    parts = _offload(engine) | _transfer(engine) | _lora(engine.lora, store)
    parts |= model_parsers(model, store).arguments()
    return _with_parts(given | parts | engine.options, engine)


def without_servers(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """``arguments`` without those of vLLM's HTTP server, which its engine refuses. Imports vLLM."""
    from vllm.engine.arg_utils import AsyncEngineArgs

    known = {field.name for field in dataclasses.fields(AsyncEngineArgs)}
    return {name: value for name, value in arguments.items() if name in known}


def speculative_config(
    settings: SpeculationSettings | None, store: ModelStore, *, with_depths: bool = True
) -> dict[str, Any] | None:
    """vLLM's ``speculative_config``. ``with_depths``: include the schedule of depths."""
    if settings is None:
        return None
    values: dict[str, Any] = {
        "method": settings.method,
        "num_speculative_tokens": settings.num_speculative_tokens,
        "model": None if settings.model is None else store.resolve(settings.model),
        "draft_tensor_parallel_size": settings.draft_tensor_parallel_size,
        "prompt_lookup_max": settings.prompt_lookup_max,
        "prompt_lookup_min": settings.prompt_lookup_min,
        "use_heterogeneous_vocab": settings.use_heterogeneous_vocab,
    }
    if with_depths and settings.depth_by_load is not None:
        values["num_speculative_tokens_per_batch_size"] = depth_schedule(settings.depth_by_load)
    elif with_depths and settings.guard and settings.method in DEPTH_CAN_CHANGE - READS_THE_TEXT:
        # With a schedule, even of a single depth, vLLM captures CUDA graphs that allow the depth to change.
        same = DepthStep(requests=1, tokens=settings.num_speculative_tokens)
        values["num_speculative_tokens_per_batch_size"] = depth_schedule([same])
    return {name: value for name, value in values.items() if value is not None} | (settings.options or {})


def _sleeps_on_gpu(model: ModelSettings) -> bool:
    """Whether vLLM must allocate GPU memory so that it can be released. A CPU engine has none to release."""
    return model.may_sleep and model.managed_engine.accelerator == "gpu"


def _is_eager_on_cpus(engine: EngineSettings) -> bool:
    """vLLM compiles no engine with adapters on CPUs."""
    return engine.accelerator == "cpu" and (engine.enforce_eager or engine.lora is not None)


def _is_guarded(engine: EngineSettings) -> bool:
    """Whether the guard may reduce speculation when it is a loss. Not with data-parallel ranks: if they chose
    different depths, they would wait for each other forever."""
    speculation = engine.speculation
    return speculation is not None and speculation.guard and engine.data_parallel_size == 1


def _scheduler(engine: EngineSettings) -> str | None:
    """The scheduler that decides the depth; ``None``: vLLM's own."""
    if _is_guarded(engine):
        return GUARDED_SCHEDULER
    return DEPTH_SCHEDULER if schedules_depths(engine) else None


def depth_schedule(steps: Sequence[DepthStep]) -> list[list[int]]:
    """vLLM's ``[first, last, tokens]`` for each range of running requests."""
    ends = [step.requests - 1 for step in steps[1:]] + [MOST_REQUESTS]
    return [[step.requests, end, step.tokens] for step, end in zip(steps, ends, strict=True)]


def placement_group_config(engine: EngineSettings) -> dict[str, Any] | None:
    """``LLMConfig.placement_group_config``; ``None`` for Ray's own default (pack). Ray adds the accelerator
    type to each bundle."""
    if engine.placement == "pack" and engine.nodes is None:
        return None
    bundle = {"CPU": 1.0} if engine.accelerator == "cpu" else {"GPU": 1.0}
    if engine.nodes is not None:
        bundle[engine.nodes] = SHARE
    return {"bundle_per_worker": bundle, "strategy": engine.placement.upper()}


def check_arguments(model: ModelSettings, store: ModelStore) -> None:
    """Check the arguments against the installed vLLM: names, types, and the packages that a method needs.
    Imports vLLM (seconds) and starts nothing.

    Raises:
        SettingsError: one line per problem, each with the setting and what is expected.
    """
    problems = [*_wrong_arguments(engine_arguments(model, store)), *_missing_packages(model.managed_engine)]
    if problems:
        raise SettingsError("\n".join(f"model {model.id!r}: engine.{problem}" for problem in problems))


def option_problems(model: ModelSettings) -> Iterator[str]:
    """What :func:`check_arguments` says of the raw options alone, which are the same on every node. Imports
    vLLM."""
    engine = model.managed_engine
    given = dict(engine.options)
    if engine.speculation is not None and engine.speculation.options:
        given["speculative_config"] = engine.speculation.options
    yield from (f"model {model.id!r}: engine.{problem}" for problem in _wrong_arguments(given))


def check_config(model: ModelSettings, store: ModelStore) -> None:
    """Build vLLM's own engine configuration as the replica will. Skipped unless this node has the engine's
    kind of device and the weights in a folder: a head node without a GPU builds the graph of GPU engines,
    and vLLM checks the rest on the engine's own node. Starts nothing.

    Raises:
        SettingsError: one line, with vLLM's own reason.
    """
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.platforms import current_platform

    engine = model.managed_engine
    source = store.resolve(model.managed_source)
    on_cpu = engine.accelerator == "cpu"
    has_device = current_platform.is_cpu() if on_cpu else current_platform.is_cuda_alike()
    if not Path(source).is_dir() or not has_device:
        return
    arguments = without_servers(engine_arguments(model, store))
    executor = "mp" if on_cpu else "ray"
    before = dict(os.environ)
    try:
        os.environ.update(engine.env)
        made = AsyncEngineArgs(**arguments, model=source, distributed_executor_backend=executor)
        made.create_engine_config()
    except Exception as error:  # any type of error means that vLLM refuses the settings
        raise SettingsError(
            f"model {model.id!r}: engine: vLLM refuses these settings: {_reason(error)}"
        ) from None
    finally:
        # vLLM's platform code sets environment variables for the workers that it expects to start.
        os.environ.clear()
        os.environ.update(before)


def _offload(engine: EngineSettings) -> dict[str, Any]:
    if engine.kv_offload is None:
        return {}
    # The simpler offload has no file that devices share.
    shares = engine.num_devices > 1 and engine.env.get("VLLM_USE_SIMPLE_KV_OFFLOAD", "0") == "0"
    extension = {WORKER_EXTENSION: DEVICE_NUMBER} if shares else {}
    return {
        "kv_offloading_size": engine.kv_offload.size_gib,
        "kv_offloading_backend": engine.kv_offload.backend,
        **extension,
    }


def _transfer(engine: EngineSettings) -> dict[str, Any]:
    """The KV transfer. Prefill and decode engines both get the role ``kv_both``: each request says whether to
    send or to receive."""
    if engine.disaggregation is None:
        return {}
    connector = CONNECTORS[engine.disaggregation.connector]
    policy = "recompute"  # if the transfer fails, the decode engine prefills
    return {KV_TRANSFER: {"kv_connector": connector, "kv_role": "kv_both", "kv_load_failure_policy": policy}}


def _lora(settings: LoraSettings | None, store: ModelStore) -> dict[str, Any]:
    if settings is None:
        return {}
    modules = [{"name": name, "path": store.resolve(path)} for name, path in settings.adapters.items()]
    arguments = {
        "enable_lora": True,
        "lora_modules": modules,
        "max_loras": settings.batch_loras,
        "max_lora_rank": settings.max_lora_rank,
        "max_cpu_loras": settings.max_cpu_loras,
    }
    return {name: value for name, value in arguments.items() if value is not None}


def _with_parts(arguments: dict[str, Any], engine: EngineSettings) -> dict[str, Any]:
    """Merge in settings that are one key of a vLLM argument; its other keys may be in ``options``."""
    depths = engine.speculation.depth_by_load if engine.speculation and schedules_depths(engine) else None
    parts = {
        "additional_config": (DEPTHS, depths and depth_schedule(depths)),
        "compilation_config": ("cudagraph_mode", engine.cudagraph_mode and engine.cudagraph_mode.upper()),
        "structured_outputs_config": ("backend", engine.structured_outputs_backend),
    }
    for name, (key, value) in parts.items():
        if value is not None:
            arguments[name] = dict(arguments.get(name) or {}) | {key: value}
    return arguments


def _wrong_arguments(arguments: Mapping[str, Any]) -> Iterator[str]:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.launchers.cli_args import FrontendArgs

    fields = (*dataclasses.fields(AsyncEngineArgs), *dataclasses.fields(FrontendArgs))
    known = {field.name: field.type for field in fields}
    for name, value in arguments.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else "see `vllm serve --help=all` for what it knows"
            yield f"options.{name} = {value!r}: vLLM has no such argument; {hint}"
        elif problem := _wrong_type(known[name], value):
            yield f"{_setting_of(name)} = {value!r}: {problem}"
    yield from _wrong_speculation(arguments.get("speculative_config"))
    yield from _unregistered(arguments.get("quantization"))


def _wrong_type(kind: Any, value: Any) -> str | None:
    try:
        TypeAdapter(kind).validate_python(value)
    except NOT_CHECKABLE:
        return None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        inner = ".".join(str(part) for part in first["loc"] if isinstance(part, str) and "[" not in part)
        expected = first["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
        return f"{inner}: {expected}" if inner else expected
    return None


def _setting_of(argument: str) -> str:
    """The setting behind an argument."""
    if argument in EngineSettings.model_fields:
        return argument
    return OWN_SETTING.get(argument, f"options.{argument}")


def _wrong_speculation(config: Mapping[str, Any] | None) -> Iterator[str]:
    if config is None:
        return
    from vllm.config import SpeculativeConfig

    known = [field.name for field in dataclasses.fields(SpeculativeConfig)]
    for name, value in config.items():
        if name.replace("-", "_") not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            yield f"speculation.options.{name} = {value!r}: vLLM's speculative_config has no such key{hint}"


def _unregistered(quantization: str | None) -> Iterator[str]:
    """The problem of a quantization method that this vLLM does not have, because its plug-in is missing."""
    if quantization is None:
        return
    from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS
    from vllm.plugins import load_general_plugins

    load_general_plugins()  # type: ignore[no-untyped-call]
    if quantization not in QUANTIZATION_METHODS:
        yield (
            f"quantization = {quantization!r}: this vLLM has no such method: install the plug-in that "
            "adds it, or turn GGUF weights into safetensors (scripts/prepare_models.py)"
        )


def _missing_packages(engine: EngineSettings) -> Iterator[str]:
    method = engine.speculation.method if engine.speculation else None
    if method == "suffix" and importlib.util.find_spec(SUFFIX_PACKAGE) is None:
        yield (
            "speculation.method = 'suffix': needs the package arctic-inference, which is not installed: "
            "`pip install arctic-inference==0.1.1`, or use method 'ngram'"
        )
    offload = engine.kv_offload.backend if engine.kv_offload else None
    if offload == "lmcache" and importlib.util.find_spec("lmcache") is None:
        yield (
            "kv_offload.backend = 'lmcache': needs the package lmcache, which is not installed: "
            "`pip install lmcache`, or use backend 'native'"
        )
    connector = engine.disaggregation.connector if engine.disaggregation else None
    if connector is not None and importlib.util.find_spec(connector) is None:
        yield (
            f"disaggregation.connector = {connector!r}: needs the package {connector}, which is not "
            f"installed: `pip install {connector}`"
        )


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return "; ".join(
            item["msg"].removeprefix("Value error, ") for item in error.errors(include_url=False)
        )
    return " ".join(str(error).split()) or type(error).__name__
