"""Products in float32 of 16-bit weights: what they give, and which layers get them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import linear

from deployments.engine.cpu.wide import FEW_ROWS, Product, wide_product, widen_products

OUTS, INS, BLOCK = 37, 24, 5 * 24
"""Blocks of five rows of the weights; the last one has two."""


def drawn(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    torch.manual_seed(sum(shape))
    return torch.randn(*shape).to(dtype)


def exact(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    wide = linear(x.double(), weight.double(), None if bias is None else bias.double())
    return wide.to(x.dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(FEW_ROWS + 1, INS), (300, INS), (2, 9, INS)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_a_product_is_the_exact_one_rounded_once(
    dtype: torch.dtype, shape: tuple[int, ...], has_bias: bool
) -> None:
    x, weight = drawn(*shape, dtype=dtype), drawn(OUTS, INS, dtype=dtype)
    bias = drawn(OUTS, dtype=dtype) if has_bias else None
    made = wide_product(block=BLOCK)(x, weight, bias)
    expected = exact(x, weight, bias)
    assert (made.dtype, made.shape) == (dtype, (*shape[:-1], OUTS))
    # Sums in float32 may fall on the other side of the middle between two neighbours.
    assert (made == expected).float().mean() > 0.99
    torch.testing.assert_close(made, expected, rtol=torch.finfo(dtype).eps, atol=1e-4)


def test_a_row_of_weights_that_is_longer_than_a_block_is_one() -> None:
    product = wide_product(block=BLOCK)
    long, short = drawn(8, 3 * BLOCK), drawn(8, INS)
    wide, narrow = drawn(5, 3 * BLOCK), drawn(OUTS, INS)
    torch.testing.assert_close(product(long, wide), exact(long, wide, None))
    torch.testing.assert_close(product(short, narrow), exact(short, narrow, None), rtol=0.008, atol=1e-4)


def test_few_rows_are_torchs_own_product() -> None:
    x, weight, bias = drawn(FEW_ROWS, INS), drawn(OUTS, INS), drawn(OUTS)
    assert torch.equal(wide_product(block=BLOCK)(x, weight, bias), linear(x, weight, bias))


def test_what_is_not_there_gives_nothing() -> None:
    assert wide_product()(drawn(0, INS), drawn(OUTS, INS)).shape == (0, OUTS)


def layer(weight: torch.Tensor | None, *, product: Product | None = linear) -> torch.nn.Module:
    made: Any = torch.nn.Module()
    made.weight = None if weight is None else torch.nn.Parameter(weight, requires_grad=False)
    if product is not None:
        made.cpu_linear = product
    return made  # type: ignore[no-any-return]


def packed(weight: torch.Tensor) -> Product:
    """As vLLM's, of weights that another library keeps."""
    return lambda x, _, bias=None: linear(x, weight, bias)


class Wrapper(torch.nn.Module):
    """As vLLM's of LoRA: what it does not have is the layer's that it wraps."""

    def __init__(self, base: torch.nn.Module) -> None:
        super().__init__()
        self.base = base

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name) if name == "base" else getattr(self.base, name)


def test_only_16_bit_matrices_that_vllm_has_left_to_torch_are_widened() -> None:
    widened = [layer(drawn(OUTS, INS)), layer(drawn(OUTS, INS, dtype=torch.float16))]
    left = {
        "float32": layer(drawn(OUTS, INS, dtype=torch.float32)),
        "packed by another library": layer(torch.empty(0, dtype=torch.bfloat16)),
        "head packed by another library": layer(drawn(OUTS, INS), product=packed(drawn(OUTS, INS))),
        "experts": layer(drawn(2, OUTS, INS)),
        "no weight": layer(None),
        "not vLLM's": layer(drawn(OUTS, INS), product=None),
        "wraps one": Wrapper(widened[0]),
    }
    model = torch.nn.ModuleList([*widened, *left.values()])
    assert widen_products(model) == len(widened)
    (product,) = {each.cpu_linear for each in widened}  # one block for all layers
    assert product is not linear
    assert [name for name, each in left.items() if vars(each).get("cpu_linear") is product] == []
