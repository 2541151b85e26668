"""Names of vLLM's metrics as they appear on Ray's Prometheus page. A test compares them with the installed
vLLM, so that one which it renames is not found missing by an empty panel. There is no gauge among them: an
engine sets its own only while it works, and Ray drops what was not set for twenty seconds."""

from __future__ import annotations

import re
from enum import Enum


class Vllm(Enum):
    """Each metric that a panel asks for: vLLM's own name, and its kind."""

    PREFIX_QUERIES = ("vllm:prefix_cache_queries", "counter")
    PREFIX_HITS = ("vllm:prefix_cache_hits", "counter")
    PREEMPTIONS = ("vllm:num_preemptions", "counter")
    PROMPT_TOKENS = ("vllm:prompt_tokens", "counter")
    OUTPUT_TOKENS = ("vllm:generation_tokens", "counter")
    DRAFTED = ("vllm:spec_decode_num_draft_tokens", "counter")
    ACCEPTED = ("vllm:spec_decode_num_accepted_tokens", "counter")
    BETWEEN_TOKENS = ("vllm:inter_token_latency_seconds", "histogram")
    QUEUE_TIME = ("vllm:request_queue_time_seconds", "histogram")
    PREFILL_TIME = ("vllm:request_prefill_time_seconds", "histogram")
    DECODE_TIME = ("vllm:request_decode_time_seconds", "histogram")

    def __init__(self, own_name: str, kind: str) -> None:
        self.own_name = own_name
        self.kind = kind

    @property
    def exported(self) -> str:
        """On Ray's page: without characters that Ray does not take, `ray_` before it, `_total` behind a
        counter."""
        name = re.sub(r"[^a-zA-Z0-9_]", "_", self.own_name)
        return f"ray_{name}" + ("_total" if self.kind == "counter" else "")
