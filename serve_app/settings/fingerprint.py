"""Identifies the model behind an answer: a digest of the names of its weights and of the settings that
influence its text."""

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
        "nodes",
        "scheduling_policy",
        "kv_offload",
        "disaggregation",
        "enable_sleep_mode",
        "lora",
        "tools",
    }
)
"""Engine settings of speed and placement, which do not change the text, the parser of tool calls (answers to
requests with tools are not cached), and adapters, which have fingerprints of their own
(``serve_app.model_choice.names``). Speculation is part of the digest: it is exact only in
theory."""


def fingerprint(model: ModelSettings) -> str:
    """The digest changes with the weights' name (``source``, ``revision``) and with the way they are run, so
    that the cache never returns an old model's answers for a new model. It does not notice weights that are
    replaced under the same name: give each version a ``revision``, or purge the model's entries."""
    engine = None if model.engine is None else model.engine.model_dump(exclude=set(WITHOUT_INFLUENCE))
    value: dict[str, object] = {"source": model.source, "revision": model.revision, "engine": engine}
    if model.upstreams:
        value["upstreams"] = sorted({(each.url, each.model or model.id) for each in model.upstreams})
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:16]
