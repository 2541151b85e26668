"""From a correction to a golden case: what was asked, and the answer that a person wanted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def golden_case(feedback: Mapping[str, Any], scorer: str) -> dict[str, Any] | None:
    """A case of a suite, from one element of `/admin/feedback`; ``None``: nothing is corrected, or what was
    asked is not known. Braces in texts are no variables."""
    if not feedback.get("correction") or not feedback.get("messages"):
        return None
    tags = ["feedback", feedback.get("label"), feedback.get("request", {}).get("model")]
    return {
        "id": f"feedback-{feedback['number']}",
        "messages": feedback["messages"],
        "expected": feedback["correction"],
        "assertions": [{"scorer": scorer}],
        "tags": [tag for tag in tags if tag],
        "template": False,
    }


def golden_suite(feedback: Iterable[Mapping[str, Any]], scorer: str) -> tuple[dict[str, Any], int]:
    """A suite of all corrections, one case for each request, the newest correction; and how many corrections
    are left out because what was asked is not known."""
    cases: dict[tuple[str, str], dict[str, Any]] = {}
    left_out = 0
    for each in feedback:
        if not each.get("correction"):
            continue
        case = golden_case(each, scorer)
        if case is None:
            left_out += 1
        else:
            cases.setdefault((each["tenant"], each["request_id"]), case)
    return {"name": "feedback", "cases": list(cases.values())[::-1]}, left_out
