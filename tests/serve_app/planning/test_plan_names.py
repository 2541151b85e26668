"""Names of methods and types are those of the installed vLLM, read from its source and not imported."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

from serve_app.planning import DEVICES, find_device
from serve_app.planning.quantization import FROM_CHECKPOINT, KV_BYTES, METHODS, PLUG_INS, family

SPEC = importlib.util.find_spec("vllm")
pytestmark = pytest.mark.skipif(SPEC is None, reason="vLLM is not installed")


def literals(file: str, name: str) -> set[str]:
    """The strings of ``name = Literal[...]`` in a file of vLLM."""
    assert SPEC is not None
    assert SPEC.submodule_search_locations is not None
    tree = ast.parse((Path(SPEC.submodule_search_locations[0]) / file).read_text(encoding="utf-8"))
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == name
        ):
            return {each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant)}
    raise AssertionError(f"{file} has no {name}")


def test_every_quantization_of_vllm_is_known_and_no_other() -> None:
    assert (
        literals("model_executor/layers/quantization/__init__.py", "QuantizationMethods")
        == METHODS - PLUG_INS
    )


def test_every_type_of_kv_cache_is_known_and_no_other() -> None:
    assert literals("config/cache.py", "CacheDType") == {"auto", *KV_BYTES}


@pytest.mark.parametrize(
    ("name", "expected"), [("gptq_marlin", "gptq"), ("compressed_tensors", "compressed-tensors")]
)
def test_kinds_of_one_family_are_one(name: str, expected: str) -> None:
    assert family(name) == expected
    assert set(FROM_CHECKPOINT.values()) >= {expected}


def test_devices_are_found_by_rays_names_and_in_any_spelling() -> None:
    assert find_device("h100") is find_device("NVIDIA_H100_80GB_HBM3")
    assert find_device("AMD-Instinct-MI300X-OAM") is find_device("mi300x")
    assert find_device("A100") is find_device("A100-40G")
    assert find_device("abacus") is None


def test_every_device_has_a_source_and_sane_figures() -> None:
    for device in DEVICES:
        assert device.source
        assert device.memory_gib > 0
        assert device.bandwidth_gb_s > 0
        assert device.fp8_tflops == 0 or device.fp8_tflops == pytest.approx(2 * device.tflops, rel=0.03)
