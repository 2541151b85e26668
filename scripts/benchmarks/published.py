"""Decode times that others have published, each with the model and the GPUs it was measured on, and what the
plan expects for them. The two constants of experts in ``serve_app/planning/speed.py`` are fitted to
``FITTED``; nothing is fitted to ``FORECAST``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from deployments.engine.model_files import recorded
from serve_app.planning import engine_request, find_device, read_architecture
from serve_app.planning.speed import speed
from serve_app.planning.weights import loaded
from serve_app.settings import ModelSettings

QWEN_A100 = "github.com/tenstorrent/tt-inference-server/issues/340 (vLLM, 2025-07): Qwen3-30B-A3B, A100"
R1_H200 = "github.com/SemiAnalysisAI/InferenceX/issues/870 (SGLang 0.5.7, 2026-03): DeepSeek-R1, 8 x H200"
R1_H100 = "github.com/tenstorrent/tt-inference-server/issues/356 (vLLM, 2025-07): R1-AWQ, 8 x H100"
GPT_FAST = "github.com/pytorch-labs/gpt-fast, README (PyTorch, one request, GPUs held to 330 W)"
EAGLE3_PAPER = "arxiv.org/abs/2503.01840, table 4 (SGLang 0.4.4 without speculation, one request, MT-bench)"
QWEN25_SPEED = (
    "github.com/QwenLM/Qwen2.5, docs/source/benchmark/speed_benchmark.rst (vLLM 0.6.3; two GPUs: eager)"
)


@dataclass(frozen=True)
class Shape:
    """A model's shape: the one of Promptly's record under ``record``, but for ``changes``."""

    name: str
    record: str
    changes: Mapping[str, Any]

    def config(self) -> dict[str, Any]:
        found = recorded(self.record)
        assert found is not None, "it is in the record that comes with Promptly"
        return {**found.config, **self.changes}


LLAMA, DEEPSEEK = "meta-llama/Llama-3.1-8B-Instruct", "deepseek-ai/DeepSeek-V3"
AWQ = {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 64}}

QWEN3_30B = Shape("Qwen3-30B-A3B", "Qwen/Qwen3-30B-A3B", {})
R1 = Shape("DeepSeek-R1", DEEPSEEK, {})
R1_AWQ = Shape("DeepSeek-R1-AWQ", DEEPSEEK, AWQ)
LLAMA31_8B = Shape("Llama 3.1 8B", LLAMA, {})
LLAMA2_7B = Shape(
    "Llama 2 7B", LLAMA, {"intermediate_size": 11008, "num_key_value_heads": 32, "vocab_size": 32000}
)
LLAMA2_70B = Shape("Llama 2 70B", "meta-llama/Llama-3.3-70B-Instruct", {"vocab_size": 32000})


def _qwen25(name: str, **sizes: Any) -> Shape:
    qwen = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "head_dim": 128}
    return Shape(name, LLAMA, {**qwen, "num_key_value_heads": 8, "vocab_size": 152064, **sizes})


QWEN25_14B = _qwen25(
    "Qwen2.5 14B", hidden_size=5120, intermediate_size=13824, num_hidden_layers=48, num_attention_heads=40
)
QWEN25_72B = _qwen25(
    "Qwen2.5 72B", hidden_size=8192, intermediate_size=29568, num_hidden_layers=80, num_attention_heads=64
)
QWEN25_1B5 = _qwen25(
    "Qwen2.5 1.5B",
    hidden_size=1536,
    intermediate_size=8960,
    num_hidden_layers=28,
    num_attention_heads=12,
    num_key_value_heads=2,
    vocab_size=151936,
    tie_word_embeddings=True,
)


class Case(NamedTuple):
    """``batch`` requests at once with ``context`` tokens each; ``published`` in milliseconds per token."""

    source: str
    model: Shape
    device: str
    ranks: int
    batch: int
    context: int
    published: float

    @property
    def title(self) -> str:
        requests = "1 request" if self.batch == 1 else f"{self.batch} requests"
        return f"{self.model.name}, {self.ranks} × {self.device}, {requests} of {self.context:,} tokens"

    def expected_ms(self) -> float:
        engine = {"tensor_parallel_size": self.ranks}
        model = ModelSettings.model_validate({"id": "m", "source": "owner/m", "engine": engine})
        shape, asked = read_architecture(self.model.config()), engine_request(model)
        device = find_device(self.device)
        assert device is not None, "it is in the table of devices"
        times = speed(shape, loaded(shape, None, asked), asked, device)
        assert times is not None, "the shape is known"
        return 1e3 * times.decode_step_s(self.batch, self.context)

    def ratio(self) -> float:
        """The expected time over the published one."""
        return self.expected_ms() / self.published


FITTED = (
    Case(QWEN_A100, QWEN3_30B, "A100-80G", 1, 1, 192, 9.6),
    Case(QWEN_A100, QWEN3_30B, "A100-80G", 1, 1, 2112, 9.9),
    Case(QWEN_A100, QWEN3_30B, "A100-80G", 1, 1, 4160, 10.3),
    Case(QWEN_A100, QWEN3_30B, "A100-80G", 1, 1, 8256, 10.6),
    Case(R1_H200, R1, "H200", 8, 8, 1536, 12.8),
    Case(R1_H200, R1, "H200", 8, 16, 1536, 17.2),
    Case(R1_H200, R1, "H200", 8, 32, 1536, 25.6),
    Case(R1_H200, R1, "H200", 8, 64, 1536, 34.6),
)

FORECAST = (
    Case(GPT_FAST, LLAMA2_7B, "A100-80G", 1, 1, 100, 1000 / 104.9),
    Case(GPT_FAST, LLAMA2_7B, "A100-80G", 2, 1, 100, 1000 / 168.84),
    Case(GPT_FAST, LLAMA2_7B, "A100-80G", 4, 1, 100, 1000 / 254.02),
    Case(GPT_FAST, LLAMA2_7B, "A100-80G", 8, 1, 100, 1000 / 328.43),
    Case(GPT_FAST, LLAMA2_70B, "A100-80G", 2, 1, 100, 1000 / 21.32),
    Case(GPT_FAST, LLAMA2_70B, "A100-80G", 4, 1, 100, 1000 / 38.01),
    Case(GPT_FAST, LLAMA2_70B, "A100-80G", 8, 1, 100, 1000 / 62.50),
    Case(EAGLE3_PAPER, LLAMA31_8B, "H100", 1, 1, 500, 1000 / 158.34),
    Case(QWEN25_SPEED, QWEN25_14B, "A100-80G", 1, 1, 1024, 1000 / 46.30),
    Case(QWEN25_SPEED, QWEN25_72B, "A100-80G", 2, 1, 1024, 1000 / 18.19),
    Case(QWEN25_SPEED, QWEN25_72B, "A100-80G", 4, 1, 1024, 1000 / 31.37),
)
"""A source says tokens a second; their mean context is ours, and matters little for one request."""

FOUR_BIT_EXPERTS = Case(R1_H100, R1_AWQ, "H100", 8, 1, 192, 16.1)
"""The plan does not hold here: AWQ kernels for experts. It is still of the order."""

VERY_SMALL = Case(QWEN25_SPEED, QWEN25_1B5, "A100-80G", 1, 1, 1024, 1000 / 183.33)
"""Nor here: where a step takes two milliseconds, the engine's own Python decides, which the plan leaves
out."""
