"""The schemes of ``scripts/quantize.py``, by name."""

from __future__ import annotations

from dataclasses import dataclass


class QuantizeError(RuntimeError):
    """Nothing was quantised; the message names the argument and a value that works."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """``preset`` is llm-compressor's name of the number format; ``calibrates``: whether the scheme reads
    samples."""

    name: str
    title: str
    preset: str
    method: str
    calibrates: bool
    runs_on: str


FP8 = Scheme(
    name="fp8",
    title="FP8",
    preset="FP8_DYNAMIC",
    method="weights rounded to FP8 per channel, activations per token while it runs",
    calibrates=False,
    runs_on="GPUs from Ada and Hopper on (compute capability 8.9); older ones keep only the memory",
)
INT8 = Scheme(
    name="int8",
    title="INT8 W8A8",
    preset="W8A8",
    method="SmoothQuant, then GPTQ: weights per channel, activations per token while it runs",
    calibrates=True,
    runs_on="GPUs from Turing on (compute capability 7.5), and x86 CPUs",
)
INT8_ROUNDED = Scheme(
    name="int8-rounded",
    title="INT8 W8A8, rounded",
    preset="W8A8",
    method="weights rounded to INT8 per channel, activations per token while it runs",
    calibrates=False,
    runs_on="GPUs from Turing on (compute capability 7.5), and x86 CPUs",
)
"""In seconds instead of minutes to an hour, for a first comparison; where it loses, calibrate."""

AWQ = Scheme(
    name="awq",
    title="AWQ W4A16",
    preset="W4A16_ASYM",
    method="activation-aware scaling, then weights in 4 bits by groups; activations stay as they are",
    calibrates=True,
    runs_on="GPUs from Turing on (compute capability 7.5), and CPUs with AVX-512",
)
SCHEMES = {scheme.name: scheme for scheme in (FP8, INT8, INT8_ROUNDED, AWQ)}


def scheme_named(name: str) -> Scheme:
    """Raises: QuantizeError: there is no scheme of that name; the message lists the known ones."""
    scheme = SCHEMES.get(name.lower())
    if scheme is None:
        known = ", ".join(f"{each.name} ({each.title})" for each in SCHEMES.values())
        raise QuantizeError(f"--scheme {name}: not known; use one of: {known}")
    return scheme


def quantized_source(source: str, scheme: Scheme) -> str:
    """The hub id or folder under which the quantised model is found."""
    return f"{source.rstrip('/')}-{scheme.name}"


GROUP_SIZES = (128, 64, 32)
"""Group sizes of 4-bit weights for which vLLM has kernels."""


def group_size(widths: set[int]) -> int:
    """The largest group that divides the inputs of every quantised layer.

    Raises:
        QuantizeError: none does.
    """
    for size in GROUP_SIZES:
        if all(width % size == 0 for width in widths):
            return size
    raise QuantizeError(
        f"--scheme awq: no group of {', '.join(map(str, GROUP_SIZES))} divides every layer's inputs "
        f"({', '.join(map(str, sorted(widths)))}); use --scheme int8 or fp8"
    )
