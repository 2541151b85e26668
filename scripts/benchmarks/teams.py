"""Do keys, limits and usage hold over real HTTP? Gateways behind HAProxy, before a scripted engine.

    cd scripts; python -m benchmarks --only teams --parts budget
    cd scripts; python -m benchmarks --only teams --parts cost --litellm

Each part says what it does; without `--parts` all of them run, one after the other. What limits do by
themselves, in one process, is the benchmark `quotas`; finding one of many keys is `keys`.
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
"""It also says why a peer is not beside."""

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
