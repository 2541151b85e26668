"""vLLM's configuration on a pretended machine with eight H100, built for real: as a script, in a process of
its own, because a process has one vLLM platform.

    python -m support.pretended_cuda FOLDER CASES

CASES: JSON, model settings by name. With a key ``told`` beside them: depths that vLLM would be told of.

The last line printed is a JSON object: by a case's name what vLLM chose and the CUDA graphs that its runner
would capture, or the error. FOLDER becomes a model store with the recorded shapes of the models, no weights.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 180.0
MEMORY_BYTES = int(79.18 * 2**30)


def on_pretended_h100(folder: Path, cases: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """What vLLM makes of each case. Raises AssertionError, with the end of the output, if none came back."""
    paths = os.pathsep.join((str(ROOT), str(ROOT / "tests")))
    env = os.environ | {"PYTHONPATH": paths, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    ran = subprocess.run(
        [sys.executable, "-m", "support.pretended_cuda", str(folder), json.dumps(cases)],
        env=env,
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]
    found: dict[str, dict[str, Any]] = json.loads(ran.stdout.splitlines()[-1])
    return found


def pretend() -> None:
    """Replace vLLM's platform. Must be called before anything of vLLM but its platforms is imported."""
    for name in ("_C_stable_libtorch", "_moe_C_stable_libtorch", "vllm_flash_attn"):
        # The CUDA kernels, which no CPU build has.
        sys.modules[f"vllm.{name}"] = MagicMock(__name__=f"vllm.{name}", __spec__=None)
    from vllm import platforms
    from vllm.platforms.cuda import CudaPlatformBase
    from vllm.platforms.interface import DeviceCapability

    class PretendedH100(CudaPlatformBase):
        """Answers what vLLM asks of a device before it loads anything."""

        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> DeviceCapability:
            return DeviceCapability(9, 0)

        @classmethod
        def get_device_name(cls, device_id: int = 0) -> str:
            return "NVIDIA H100 80GB HBM3"

        @classmethod
        def get_device_total_memory(cls, device_id: int = 0) -> int:
            return MEMORY_BYTES

        @classmethod
        def is_fully_connected(cls, device_ids: list[int]) -> bool:
            return True

        @classmethod
        def device_count(cls) -> int:
            return 8

        @classmethod
        def get_cuda_runtime_major(cls) -> int:
            return 13

        @classmethod
        def num_compute_units(cls, device_id: int = 0) -> int:
            return 132

        def get_global_graph_pool(self) -> None:
            return None

    platforms._current_platform = PretendedH100()  # type: ignore[attr-defined]
    from vllm import triton_utils
    from vllm.config import vllm as configuration
    from vllm.triton_utils import importing

    for module in (importing, triton_utils, configuration):
        module.HAS_TRITON = True  # type: ignore[attr-defined]
    from vllm import _custom_ops
    from vllm.model_executor.models import registry

    for name in vars(_custom_ops).copy():  # what the kernels say of themselves
        if name.startswith("cutlass_") and "_support" in name:
            setattr(_custom_ops, name, lambda *_: True)
    # vLLM imports a model's class in a process of its own, ten seconds for each architecture.
    registry._LazyRegisteredModel.inspect_model_cls = _decoder  # type: ignore[method-assign]


def _decoder(registered: Any) -> Any:
    """vLLM's description of a model, as it is of every decoder here."""
    from vllm.model_executor.models.registry import _ModelInfo

    said: dict[str, Any] = {each.name: False for each in dataclasses.fields(_ModelInfo)} | {
        "architecture": registered.class_name,
        "is_text_generation_model": True,
        "attn_type": "decoder",
        "default_seq_pooling_type": "LAST",
        "default_tok_pooling_type": "ALL",
        "score_type": "bi-encoder",
        "supports_pp": True,
        "supported_video_pruning_methods": (),
    }
    return _ModelInfo(**said)


def made(settings: Mapping[str, Any], store: Any) -> dict[str, Any]:
    """What vLLM chose for one model's settings, and its graphs."""
    config, runner = configured(settings, store)
    _resolve_graphs(config, runner)
    graphs = _second_runner_graphs(config) if runner == 2 else _first_runner_graphs(config)
    return {
        "runner": runner,
        "graphs": config.compilation_config.cudagraph_mode.name.lower(),
        "is_async": config.scheduler_config.async_scheduling,
        "tells_depths": _tells_depths(config),
        "captured": list(graphs),
    }


def configured(settings: Mapping[str, Any], store: Any) -> tuple[Any, int]:
    """vLLM's configuration for one model's settings, and the model runner that it takes. Raises: what vLLM
    raises."""
    from vllm.engine.arg_utils import AsyncEngineArgs

    from deployments.engine.vllm.arguments import check_arguments, engine_arguments, without_servers
    from serve_app.engines.parsers import REASONING_OPTION
    from serve_app.settings import ModelSettings

    model = ModelSettings.model_validate(settings)
    check_arguments(model, store)
    arguments = without_servers(engine_arguments(model, store))
    arguments.pop(REASONING_OPTION, None)  # reads the tokenizer, which these folders do not have
    before = dict(os.environ)
    os.environ.update(model.managed_engine.env)
    try:
        config = AsyncEngineArgs(
            **arguments,
            model=store.resolve(model.managed_source),
            distributed_executor_backend="ray",  # as ray.serve.llm asks on GPUs
            skip_tokenizer_init=True,
        ).create_engine_config()
        return config, 2 if config.use_v2_model_runner else 1
    finally:
        os.environ.clear()
        os.environ.update(before)


def _resolve_graphs(config: Any, runner: int) -> None:
    """As either runner does once it has its attention kernels: here kernels that allow all graphs."""
    from vllm.v1.attention.backend import AttentionCGSupport

    config.compilation_config.resolve_cudagraph_mode_and_sizes(
        AttentionCGSupport.ALWAYS,
        "FLASH_ATTN",
        config.uniform_decode_query_len,
        use_v2_model_runner=runner == 2,
        tensor_parallel_size=config.parallel_config.tensor_parallel_size,
    )


def _tells_depths(config: Any) -> bool:
    speculation = config.speculative_config
    return speculation is not None and speculation.uses_dynamic_speculative_decoding()


def _second_runner_graphs(config: Any) -> Iterator[dict[str, Any]]:
    """As ``GPUModelRunner`` (v1/worker/gpu) and ``AutoRegressiveSpeculator`` build them."""
    from vllm.config.compilation import CUDAGraphMode
    from vllm.v1.worker.gpu import cudagraph_utils

    cudagraph_utils.get_pp_group = lambda: SimpleNamespace(is_first_rank=True, is_last_rank=True)
    mode, depth = config.compilation_config.cudagraph_mode, config.num_speculative_tokens
    managers = {"target": (mode, depth + 1)}
    if config.speculative_config is not None:
        only_decode = mode.decode_mode() == CUDAGraphMode.FULL
        step = CUDAGraphMode.FULL_DECODE_ONLY if only_decode else CUDAGraphMode.NONE
        managers |= {"draft's first token": (mode, depth + 1), "draft's next token": (step, 1)}
    for name, (asked, length) in managers.items():
        manager = cudagraph_utils.CudaGraphManager(config, None, asked, length)
        for each in (one for some in manager._capture_descs.values() for one in some):
            yield {
                "of": name,
                "tokens": each.num_tokens,
                "requests": each.num_reqs,
                "length": each.uniform_token_count,
            }


def _first_runner_graphs(config: Any) -> Iterator[dict[str, Any]]:
    """As ``GPUModelRunner`` (v1/worker/gpu_model_runner.py) builds them."""
    from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher

    dispatcher = CudagraphDispatcher(config)
    mode = config.compilation_config.cudagraph_mode
    dispatcher.initialize_cudagraph_keys(mode, config.uniform_decode_query_len)
    for keys in dispatcher.cudagraph_keys.values():
        for each in keys:
            length = config.uniform_decode_query_len if each.uniform else None
            yield {"of": "target", "tokens": each.num_tokens, "requests": each.num_reqs, "length": length}


def graphs_if_told(settings: Mapping[str, Any], store: Any, depths: Any) -> list[dict[str, Any]]:
    """The second runner's graphs if vLLM were told that the depth may change."""
    config, _ = configured(settings, store)
    config.speculative_config.num_speculative_tokens_per_batch_size = depths
    return list(_second_runner_graphs(config))


def main(folder: Path, cases: Mapping[str, Mapping[str, Any]]) -> None:
    pretend()
    from serve_app import planning
    from serve_app.model_store import ModelStore

    store = ModelStore(folder)
    record = Path(str(planning.__file__)).parent / "data" / "models.json"
    for source, entry in json.loads(record.read_text(encoding="utf-8"))["models"].items():
        store.folder(source).mkdir(parents=True)
        (store.folder(source) / "config.json").write_text(json.dumps(entry["config"]), encoding="utf-8")
    found = {}
    for name, settings in cases.items():
        try:
            told = settings.get("told")
            plain = {key: value for key, value in settings.items() if key != "told"}
            found[name] = made(plain, store)
            if told is not None:
                found[name]["if_told"] = graphs_if_told(plain, store, told)
        except Exception as error:  # any error is the case's result, for the test to show
            found[name] = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
