"""Whether a cluster has room for the new config, and for what a roll starts before it stops anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from serve_app.engines.placement import check_placement, resources_of
from serve_app.settings import Settings
from serve_app.upgrades.changes import Change, Effect


def rolling_problems(
    new: Settings, planned: Sequence[Change], resources: Mapping[str, float], *, spare: bool
) -> Iterator[str]:
    """One line for each thing that does not fit into ``resources``, the cluster's totals by Ray's names.
    ``spare``: engines start a replacement before they stop an old replica."""
    problems = [str(problem) for problem in check_placement(new, resources)]
    yield from problems
    if problems or not spare:
        return
    for change in planned:
        if change.effect is not Effect.ROLLED or change.model is None:
            continue
        model = next(each for each in new.models if each.id == change.model)
        each = resources_of(model.managed_engine)
        left = {name: amount - each.get(name, 0.0) for name, amount in resources.items()}
        lacking = list(check_placement(new, left))
        if lacking:
            wanted = ", ".join(f"{amount:g} {name}" for name, amount in each.items() if amount)
            yield (
                f"{change.part}: a new engine starts before an old one stops, which needs {wanted} more than "
                "the cluster has beside the rest; add them, or use --stop-first: each old engine then stops "
                "before its replacement starts"
            )
