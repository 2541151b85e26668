"""Promptly's settings: the ``args`` of the application in a Serve config file.

They are typed and frozen, read once at start and passed on as values. An unknown key is an error.
"""

from serve_app.settings.accounts import AccountSettings, AccountStoreSettings
from serve_app.settings.autoscaling import AutoscalingSettings
from serve_app.settings.cache import CacheSettings
from serve_app.settings.embedder import EmbedderSettings
from serve_app.settings.engine import DisaggregationSettings, EngineSettings, SpeculationSettings
from serve_app.settings.feedback import CaptureSettings, FeedbackSettings
from serve_app.settings.gateway import GatewaySettings
from serve_app.settings.keys import KeySettings
from serve_app.settings.limits import LimitSettings
from serve_app.settings.load import check_exposure, load_file, parse_args
from serve_app.settings.logs import LogSettings
from serve_app.settings.model import HedgeSettings, ModelSettings
from serve_app.settings.qdrant import QdrantSettings
from serve_app.settings.responses import ResponsesSettings
from serve_app.settings.root import Settings
from serve_app.settings.traces import TraceSettings
from serve_app.settings.upstream import UpstreamSettings

__all__ = [
    "AccountSettings",
    "AccountStoreSettings",
    "AutoscalingSettings",
    "CacheSettings",
    "CaptureSettings",
    "DisaggregationSettings",
    "EmbedderSettings",
    "EngineSettings",
    "FeedbackSettings",
    "GatewaySettings",
    "HedgeSettings",
    "KeySettings",
    "LimitSettings",
    "LogSettings",
    "ModelSettings",
    "QdrantSettings",
    "ResponsesSettings",
    "Settings",
    "SpeculationSettings",
    "TraceSettings",
    "UpstreamSettings",
    "check_exposure",
    "load_file",
    "parse_args",
]
