"""Expected times: the roofline of a device."""

from __future__ import annotations

from typing import Any

import pytest
from planned_engines import request
from support import model_configs as configs

from serve_app.planning import Efficiency, Speed, find_device, read_architecture
from serve_app.planning.speed import EXPERT_BANDWIDTH, speed
from serve_app.planning.weights import loaded

PEAK = Efficiency(1.0, 1.0)


def speed_of(config: dict[str, Any], name: str, efficiency: Efficiency = PEAK, **engine: Any) -> Speed:
    shape, asked, device = read_architecture(config), request(**engine), find_device(name)
    assert device is not None
    found = speed(shape, loaded(shape, None, asked), asked, device, efficiency)
    assert found is not None
    return found


def test_a_lone_token_costs_one_reading_of_the_weights() -> None:
    read = 2 * (8_030_261_248 - 128256 * 4096)  # the embedding is looked up, not read
    engine = speed_of(configs.LLAMA_8B, "H100")
    assert engine.decode_step_s(1, 0) - engine.fixed_s == pytest.approx(read / 3.35e12, rel=1e-3)


def test_a_tied_head_is_read() -> None:
    engine = speed_of(configs.LLAMA_1B, "L4")
    assert engine.decode_step_s(1, 0) - engine.fixed_s == pytest.approx(2 * 1_235_814_400 / 300e9, rel=1e-3)


def test_context_adds_its_kv_cache() -> None:
    engine = speed_of(configs.LLAMA_8B, "H100")
    added = engine.decode_step_s(4, 8192) - engine.decode_step_s(4, 0)
    assert added == pytest.approx(4 * 8192 * 131_072 / 3.35e12)


def test_a_large_batch_is_bound_by_arithmetic() -> None:
    engine = speed_of(configs.LLAMA_8B, "H100")
    assert engine.decode_step_s(1024, 0) - engine.fixed_s == pytest.approx(
        1024 * 2 * 7.505e9 / 989e12, rel=1e-2
    )


def test_a_prompt_is_bound_by_arithmetic() -> None:
    engine = speed_of(configs.LLAMA_8B, "H100")
    weights = 2 * 7.505e9 * 2000
    attention = 4 * 32 * 4096 * 2000 * 1000
    assert engine.prefill_s(2000) - engine.fixed_s == pytest.approx((weights + attention) / 989e12, rel=1e-2)
    assert engine.prefill_s(0) == 0.0


def test_fp8_weights_are_read_faster_and_multiplied_faster() -> None:
    plain, small = (speed_of(configs.LLAMA_8B, "H100", quantization=name) for name in (None, "fp8"))
    assert small.decode_step_s(1, 0) < 0.6 * plain.decode_step_s(1, 0)
    assert small.prefill_s(2000) < 0.6 * plain.prefill_s(2000)


def test_a_device_without_fp8_multiplies_in_sixteen_bits() -> None:
    plain, small = (speed_of(configs.LLAMA_8B, "A100-80G", quantization=name) for name in (None, "fp8"))
    assert small.prefill_s(2000) == plain.prefill_s(2000)
    assert small.decode_step_s(1, 0) < 0.6 * plain.decode_step_s(1, 0)


def test_a_few_tokens_wake_few_experts() -> None:
    engine = speed_of(configs.QWEN3_30B_A3B, "H100")
    one, many = (engine.decode_step_s(batch, 0) - engine.fixed_s for batch in (1, 128))
    assert one < 0.15 * many
    whole = engine.dense_bytes + engine.expert_bytes / EXPERT_BANDWIDTH
    assert many == pytest.approx(whole / 3.35e12, rel=1e-2)


def test_ranks_divide_the_work_and_pay_for_their_links() -> None:
    one, four = (speed_of(configs.LLAMA_70B, "H200", tensor_parallel_size=ranks) for ranks in (1, 4))
    assert four.bytes_per_s == one.bytes_per_s
    assert one.decode_step_s(1, 0) / 4 < four.decode_step_s(1, 0) < one.decode_step_s(1, 0) / 2.5


def test_slow_links_cost_more() -> None:
    fast, slow = (speed_of(configs.LLAMA_8B, name, tensor_parallel_size=2) for name in ("H100", "H100-PCIe"))
    assert slow.fixed_s > fast.fixed_s
    assert slow.link_s_per_token > 6 * fast.link_s_per_token


def test_the_usual_efficiency_is_near_a_published_measurement() -> None:
    engine = speed_of(configs.LLAMA_70B, "H100", Efficiency(), tensor_parallel_size=4)
    assert engine.prefill_s(2083) == pytest.approx(0.189, rel=0.25)


def test_an_unknown_shape_has_no_speed() -> None:
    shape, device = read_architecture({"architectures": ["SomethingNew"]}), find_device("H100")
    assert device is not None
    assert speed(shape, loaded(shape, None, request()), request(), device) is None
