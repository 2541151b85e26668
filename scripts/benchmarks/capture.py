"""What it costs to capture every request: feedback is kept; answers are copied, redacted, sealed and stored.

Promptly with all of this and Promptly without it run at once, and are loaded in turns.
"""

from __future__ import annotations

import base64
import os
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.in_turns import cost_of, turns_of
from benchmarks.layer import ABOUT
from benchmarks.options import Options
from benchmarks.table import Figure, at_least, write_report

KEY = "BENCH_CAPTURE_KEY"


def settings_of(folder: Path) -> dict[str, Any]:
    capture = {"tenants": {"default": 1.0}}
    return {"feedback": {"path": str(folder), "encryption_key_env": KEY, "capture": capture}}


def run(options: Options) -> list[Figure]:
    found = []
    for repeat in range(options.repeats):
        with tempfile.TemporaryDirectory() as folder:
            env = {KEY: base64.b64encode(os.urandom(32)).decode()}
            found.append(turns_of(settings_of(Path(folder)), {}, options, repeat, env))
    figures = cost_of("capture", found, throughput=at_least(0.99), ttft=None)
    write_report(options.out, "capture", figures, about=ABOUT)
    return figures
