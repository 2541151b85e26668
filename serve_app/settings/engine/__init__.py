"""Settings of a vLLM engine, one module per subject.

Names are vLLM's own if it has one. The checks here need no file and no vLLM. Checks that need the model's
files are in ``deployments.engine.checks``, those that need vLLM's argument list in
``deployments.engine.vllm.arguments``.
"""

from serve_app.settings.engine.compilation import CudagraphMode
from serve_app.settings.engine.disaggregation import (
    KV_TRANSFER,
    SIDE_CHANNEL_STRIDE,
    DisaggregationSettings,
    shared_side_channels,
)
from serve_app.settings.engine.formats import QUANTIZATIONS, KvCacheDtype
from serve_app.settings.engine.lora import LoraRank, LoraSettings
from serve_app.settings.engine.memory import KvOffloadSettings
from serve_app.settings.engine.options import OWN_SETTING
from serve_app.settings.engine.root import EngineSettings
from serve_app.settings.engine.speculation import (
    DEPTH_CAN_CHANGE,
    FORMER_ANSWERS,
    OWN_SPECULATION_SETTING,
    READS_THE_TEXT,
    DepthStep,
    SpeculationSettings,
)

__all__ = [
    "DEPTH_CAN_CHANGE",
    "FORMER_ANSWERS",
    "KV_TRANSFER",
    "OWN_SETTING",
    "OWN_SPECULATION_SETTING",
    "QUANTIZATIONS",
    "READS_THE_TEXT",
    "SIDE_CHANNEL_STRIDE",
    "CudagraphMode",
    "DepthStep",
    "DisaggregationSettings",
    "EngineSettings",
    "KvCacheDtype",
    "KvOffloadSettings",
    "LoraRank",
    "LoraSettings",
    "SpeculationSettings",
    "shared_side_channels",
]
