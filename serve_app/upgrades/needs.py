"""Whether a cluster has room for the new config, and for what a roll starts before it stops anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from serve_app.engines.placement import CPU, GPU, check_placement, needed, resources_of
from serve_app.settings import Settings
from serve_app.upgrades.changes import ENGINES_START, Change


def rolling_problems(
    new: Settings, planned: Sequence[Change], resources: Mapping[str, float], *, spare: bool
) -> Iterator[str]:
    """One line for each thing that does not fit into ``resources``, the cluster's totals by Ray's names.
    ``spare``: engines start a replacement before they stop an old replica."""
    problems = [str(problem) for problem in check_placement(new, resources)]
    yield from problems
    if problems or not spare:
        return
    for change, each in _rolled(new, planned):
        left = {name: amount - each.get(name, 0.0) for name, amount in resources.items()}
        lacking = list(check_placement(new, left))
        if lacking:
            yield (
                f"{change.part}: a new engine starts before an old one stops, which needs {_amounts(each)} "
                "more than the cluster has beside the rest; add them, or use --stop-first: each old engine "
                "then stops before its replacement starts"
            )


def told_needs(
    new: Settings, planned: Sequence[Change], resources: Mapping[str, float], *, spare: bool
) -> Iterator[str]:
    """In words, what the new config takes of ``resources``, and what a roll takes beside it for a while."""
    wanted = needed(new)
    taken = ", ".join(
        f"{wanted[name]:g} of {resources.get(name, 0.0):g} {name}" for name in (GPU, CPU) if wanted[name]
    )
    yield f"it needs, with the fewest replicas, of what the cluster has: {taken}"
    if spare:
        for change, each in _rolled(new, planned):
            yield f"{change.part}: until an old engine stops, {_amounts(each)} more"


def _rolled(new: Settings, planned: Sequence[Change]) -> Iterator[tuple[Change, Mapping[str, float]]]:
    """The engines that are replaced, with what one replica takes."""
    engines = {model.id: model.engine for model in new.models}
    for change in planned:
        engine = engines.get(change.model or "")
        if change.effect in ENGINES_START and engine is not None:
            yield change, resources_of(engine)


def _amounts(each: Mapping[str, float]) -> str:
    return ", ".join(f"{amount:g} {name}" for name, amount in each.items() if amount)
