"""What it costs to capture every request: feedback is kept; answers are copied, redacted, sealed and stored.

Promptly with all of this is compared with Promptly without it. Both are compared with the bare engine that is
measured beside them, and they take turns in running first.
"""

from __future__ import annotations

import base64
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.layer import ABOUT
from benchmarks.observability import Pair, cost_of, pairs_with
from benchmarks.options import Options
from benchmarks.table import Figure, at_least, write_report

CAPTURED, PLAIN = "captured", "plain"
KEY = "BENCH_CAPTURE_KEY"


def settings_of(name: str, folder: Path) -> dict[str, Any]:
    if name == PLAIN:
        return {}
    capture = {"tenants": {"default": 1.0}}
    return {"feedback": {"path": str(folder), "encryption_key_env": KEY, "capture": capture}}


def figures_of(found: Sequence[dict[str, list[Pair]]]) -> list[Figure]:
    """``found`` has one element per repeat."""
    both = [(repeat[CAPTURED], repeat[PLAIN]) for repeat in found]
    return cost_of("capture", both, throughput=at_least(0.99), ttft=None)


def run(options: Options) -> list[Figure]:
    found = []
    for repeat in range(options.repeats):
        pairs = {}
        for name in (CAPTURED, PLAIN)[:: options.order(repeat)]:
            with tempfile.TemporaryDirectory() as folder:
                env = {KEY: base64.b64encode(os.urandom(32)).decode()}
                pairs[name] = pairs_with(settings_of(name, Path(folder)), options, repeat, env)
        found.append(pairs)
    figures = figures_of(found)
    write_report(options.out, "capture", figures, about=ABOUT)
    return figures
