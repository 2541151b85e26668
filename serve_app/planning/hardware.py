"""The devices that a plan knows: memory, bandwidth, arithmetic and links, each with its source.

``memory_gib`` is what PyTorch reports as the device's total capacity (drivers and ECC keep a part of the
nominal size), taken from published out-of-memory messages. Bandwidth and TFLOP/s are
the vendor's peak figures, *without* sparsity (data sheets that print only the sparse figure are halved).
``link_gb_s`` is one direction of the link between two devices of one machine: half of NVLink's total, or
PCIe.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator. ``tflops`` is dense 16-bit; ``fp8_tflops`` is 0 without FP8 units. ``has_vnni`` and
    ``has_bf16_units``: whether a CPU has instructions to multiply 8-bit integers and bfloat16; ``None``:
    unknown."""

    name: str
    memory_gib: float
    bandwidth_gb_s: float
    tflops: float
    fp8_tflops: float
    link_gb_s: float
    capability: tuple[int, int]
    source: str
    aliases: tuple[str, ...] = ()
    has_vnni: bool | None = None
    has_bf16_units: bool | None = None

    @property
    def is_cpu(self) -> bool:
        return self.name == "cpu"

    @property
    def has_bfloat16(self) -> bool:
        """vLLM refuses bfloat16 below compute capability 8.0 (``CudaPlatform.check_if_supports_dtype``)."""
        return self.is_cpu or self.capability >= (8, 0)


DEVICES: tuple[Device, ...] = (
    Device(
        "H100",
        79.18,
        3350,
        989,
        1979,
        450,
        (9, 0),
        "NVIDIA H100 Tensor Core GPU data sheet, SXM: 80 GB HBM3, 3.35 TB/s, BF16 1,979 and FP8 3,958 with "
        "sparsity, NVLink 900 GB/s",
        ("H100-SXM", "H100-80G", "NVIDIA-H100-80GB-HBM3"),
    ),
    Device(
        "H100-PCIe",
        79.1,
        2000,
        756,
        1513,
        64,
        (9, 0),
        "NVIDIA H100 PCIe product brief PB-11133: 80 GB HBM2e, over 2 TB/s; data sheet BF16 1,513 and FP8 "
        "3,026 "
        "with sparsity, PCIe 5.0 x16",
        ("NVIDIA-H100-PCIe",),
    ),
    Device(
        "H200",
        139.8,
        4800,
        989,
        1979,
        450,
        (9, 0),
        "NVIDIA H200 Tensor Core GPU data sheet, SXM: 141 GB HBM3e, 4.8 TB/s, arithmetic and NVLink of the "
        "H100",
        ("H200-SXM", "NVIDIA-H200"),
    ),
    Device(
        "B200",
        178.35,
        8000,
        2250,
        4500,
        900,
        (10, 0),
        "NVIDIA DGX B200 data sheet, an eighth of it: 1,440 GB, 64 TB/s HBM3e, FP8 72 PFLOP/s with sparsity, "
        "NVLink 1.8 TB/s each",
        ("NVIDIA-B200",),
    ),
    Device(
        "A100-80G",
        79.15,
        2039,
        312,
        0,
        300,
        (8, 0),
        "NVIDIA A100 data sheet, SXM: 80 GB HBM2e, 2,039 GB/s, BF16 312 dense, NVLink 600 GB/s",
        ("A100-80GB", "A100-SXM4-80GB"),
    ),
    Device(
        "A100-40G",
        39.4,
        1555,
        312,
        0,
        300,
        (8, 0),
        "NVIDIA A100 data sheet, SXM: 40 GB HBM2, 1,555 GB/s, BF16 312 dense, NVLink 600 GB/s",
        ("A100", "A100-40GB", "A100-SXM4-40GB"),
    ),
    Device(
        "L40S",
        44.4,
        864,
        362,
        733,
        32,
        (8, 9),
        "NVIDIA L40S data sheet: 48 GB GDDR6 with ECC, 864 GB/s, BF16 362.05 and FP8 733 dense, PCIe 4.0 x16",
        ("NVIDIA-L40S",),
    ),
    Device(
        "L4",
        22.03,
        300,
        121,
        242.5,
        32,
        (8, 9),
        "NVIDIA L4 data sheet: 24 GB GDDR6, 300 GB/s, BF16 242 and FP8 485 with sparsity, PCIe 4.0 x16",
        ("NVIDIA-L4",),
    ),
    Device(
        "A10G",
        22.05,
        600,
        70,
        0,
        32,
        (8, 6),
        "NVIDIA A10G (made for AWS G5): 24 GB GDDR6, 600 GB/s, FP16 70 dense, PCIe 4.0 x16; an A10 has 125",
        ("NVIDIA-A10G", "A10"),
    ),
    Device(
        "T4",
        14.56,
        320,
        65,
        0,
        16,
        (7, 5),
        "NVIDIA T4 data sheet: 16 GB GDDR6, 320 GB/s (300 on older sheets), FP16 65, PCIe 3.0 x16; no "
        "bfloat16",
        ("NVIDIA-TESLA-T4", "TESLA-T4"),
    ),
    Device(
        "RTX4090",
        23.64,
        1008,
        165,
        330,
        32,
        (8, 9),
        "NVIDIA Ada GPU architecture white paper, GeForce RTX 4090: 24 GB GDDR6X, 1,008 GB/s, FP16 165.2 "
        "and FP8 "
        "330.3 dense with FP32 accumulation, PCIe 4.0 x16",
        ("RTX-4090", "GEFORCE-RTX-4090"),
    ),
    Device(
        "MI300X",
        191.69,
        5300,
        1307,
        2615,
        448,
        (9, 4),
        "AMD Instinct MI300X data sheet: 192 GB HBM3, 5.3 TB/s, BF16 1,307.4 and FP8 2,614.9 dense, Infinity "
        "Fabric 896 GB/s",
        ("AMD-INSTINCT-MI300X-OAM",),
    ),
    Device(
        "cpu",
        16.0,
        40.0,
        0.15,
        0,
        20,
        (0, 0),
        "no vendor's figure: two channels of DDR4-2666 (42.7 GB/s) and two AVX2 cores at 2.5 GHz (two FMA "
        "units, "
        "8 lanes, 80 GFLOP/s each in float32); the command takes the machine's own memory and cores",
        (),
    ),
)
"""The names and aliases include Ray's accelerator types; ``A100`` without a size means the smaller one."""


def find_device(name: str) -> Device | None:
    """The device of this name or alias; case, spaces and underscores do not matter. ``None`` if unknown."""
    wanted = _plain(name)
    return next((each for each in DEVICES if wanted in map(_plain, (each.name, *each.aliases))), None)


def find_reported(name: str) -> Device | None:
    """The device that a driver reports by this name, such as ``NVIDIA GeForce RTX 4090``. ``None`` if
    unknown."""
    return find_device(name) or find_device(name.removeprefix("NVIDIA ").removeprefix("GeForce "))


def device_names() -> str:
    """All names, for messages."""
    return ", ".join(device.name for device in DEVICES)


def _plain(name: str) -> str:
    return name.casefold().replace(" ", "-").replace("_", "-")
