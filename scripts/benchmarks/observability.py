"""What it costs to measure every request: latency windows, alerts, metrics, the newest requests, log lines.

Promptly with all of this, as shipped, and Promptly without it run at once, and are loaded in turns.
"""

from __future__ import annotations

from typing import Any

from benchmarks.in_turns import cost_of, turns_of
from benchmarks.layer import ABOUT
from benchmarks.options import Options
from benchmarks.table import Figure, at_least, at_most, write_report

MEASURED, UNMEASURED = "measured", "unmeasured"
SETTINGS: dict[str, dict[str, Any]] = {
    MEASURED: {},
    UNMEASURED: {"gateway": {"metrics": False}, "logs": {"requests": "off"}},
}


def run(options: Options) -> list[Figure]:
    found = [
        turns_of(SETTINGS[MEASURED], SETTINGS[UNMEASURED], options, repeat)
        for repeat in range(options.repeats)
    ]
    figures = cost_of("measuring", found, throughput=at_least(0.98), ttft=at_most(0.3))
    write_report(options.out, "observability", figures, about=ABOUT)
    return figures
