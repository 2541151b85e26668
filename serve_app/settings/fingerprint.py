"""Which model gave an answer: a digest of the weights' names and the settings that shape its text."""

from __future__ import annotations

import hashlib

import msgspec

from serve_app.settings.model import ModelSettings

WITHOUT_INFLUENCE = frozenset(
    {
        "accelerator_type",
        "max_num_seqs",
        "gpu_memory_utilization",
        "cpu_kv_cache_gib",
        "enable_prefix_caching",
        "allowed_media_domains",
        "num_cpus",
        "warm_up",
        "warm_up_budget_s",
        "env",
        "placement",
        "scheduling_policy",
        "kv_offload",
        "disaggregation",
        "enable_sleep_mode",
        "lora",
    }
)
"""Engine settings about speed and place, and adapters: they leave the base model's text alone, and each has
a fingerprint of its own (``serve_app.model_choice.names``). Speculation stays in: it is exact only in
theory."""


def fingerprint(model: ModelSettings) -> str:
    """Changes when other weights are named (``source``, ``revision``) or they are run in another way, so
    that a new model never answers with an old one's words. Weights replaced under the same name are not
    noticed: give each state a ``revision``, or purge the model's entries."""
    engine = None if model.engine is None else model.engine.model_dump(exclude=set(WITHOUT_INFLUENCE))
    value: dict[str, object] = {"source": model.source, "revision": model.revision, "engine": engine}
    if model.upstreams:
        value["upstreams"] = sorted({(each.url, each.model or model.id) for each in model.upstreams})
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:16]
