"""What people's feedback and the cache's counters say of the threshold of semantic hits."""

from __future__ import annotations

from collections.abc import Iterator

from serve_app.suggestions.contract import ENOUGH, Observed, Suggestion

MOST_WRONG, LEAST_RIGHT = 0.02, 0.1
REFUSED_SHARE = 0.2
"""Share of the look-ups from which on refused near entries matter."""


def strict_threshold(observed: Observed) -> Iterator[Suggestion]:
    """Also the opposite: hits that people call wrong."""
    judged = [
        each["score"] < 0.5
        for each in observed.feedback
        if each["score"] is not None and each["request"]["cache"] == "semantic"
    ]
    hits, misses = int(observed.cache.get("semantic", 0)), int(observed.cache.get("misses", 0))
    refused = int(observed.cache.get("near_misses", 0))
    looked_up = hits + misses
    if len(judged) >= ENOUGH and sum(judged) / len(judged) > LEAST_RIGHT:
        yield Suggestion(
            name="loose_threshold",
            about="cache",
            advice="Raise `cache.threshold`, or set `cache.max_error_rate`, which learns the bound.",
            evidence=f"{sum(judged)} of {len(judged)} judged semantic hits were called wrong.",
            effect="Fewer wrong answers; the share of hits falls with it.",
        )
        return
    if looked_up < ENOUGH or refused < REFUSED_SHARE * looked_up:
        return
    if len(judged) < ENOUGH or sum(judged) / len(judged) > MOST_WRONG:
        return
    yield Suggestion(
        name="strict_threshold",
        about="cache",
        advice="Where `cache.decision` is `strict`, set it to `balanced`, and look at the feedback again.",
        evidence=f"{refused} near entries were refused in {looked_up} look-ups, and {sum(judged)} of "
        f"{len(judged)} judged semantic hits were called wrong.",
        effect=f"At most {refused / looked_up:.0%} of the look-ups could be answered by the cache.",
    )
