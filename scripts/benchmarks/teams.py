"""Do keys, limits and usage hold over real HTTP? Gateways run behind HAProxy, with a scripted engine.

    cd scripts; python -m benchmarks --only teams --parts budget
    cd scripts; python -m benchmarks --only teams --parts cost --litellm

Each part's docstring says what it does; without `--parts` all parts run, one after the other. The benchmark
`quotas` measures limits alone, in one process; the benchmark `keys` measures how one of many keys is found.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks import team_keys, team_kills, team_limits
from benchmarks.options import Options
from benchmarks.table import Figure, write_report

PARTS: dict[str, Callable[[Options], list[Figure]]] = {
    "budget": team_limits.budget,
    "minute": team_limits.minute,
    "revoked": team_keys.revoked,
    "kills": team_kills.kills,
}
COST = "cost"
"""This part also reports why a peer was not measured."""

NAMES = (*PARTS, COST)


def run(options: Options) -> list[Figure]:
    figures: list[Figure] = []
    about = {"load": "over HTTP, through HAProxy, on the same machine"}
    for name in options.parts or NAMES:
        print(f"teams: {name} ...", flush=True)
        if name == COST:
            found, notes = team_keys.cost(options)
            about |= notes
        else:
            found = PARTS[name](options)
        figures += found
    whole = set(options.parts or NAMES) == set(NAMES)
    report = "teams" if whole else f"teams-{'-'.join(options.parts)}"
    write_report(options.out, report, figures, about=about)
    return figures
