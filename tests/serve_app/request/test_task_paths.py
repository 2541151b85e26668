"""A path that a model's task does not have."""

from __future__ import annotations

import pytest

from serve_app.errors import NotFound
from serve_app.fleet import EngineReport, EngineState
from serve_app.request.paths import require_task


def engine(paths: set[str], *tasks: str) -> EngineReport:
    return EngineReport("r", "m", "http://h", {}, EngineState.READY, paths=frozenset(paths), tasks=tasks)


def test_it_is_refused_with_the_task_and_the_paths_that_it_has() -> None:
    with pytest.raises(
        NotFound, match=r"'m' does not answer POST /v1/score: its task is embed, .* /tokenize"
    ):
        require_task([engine({"/v1/embeddings", "/tokenize"}, "embed")], "/v1/score", "m")


@pytest.mark.parametrize(
    "reports",
    [
        [],
        [engine({"/v1/score"}, "score")],
        [engine({"/tokenize"}, "embed"), engine({"/v1/score"})],
        [engine({"/tokenize"})],
    ],
    ids=["no member yet", "offered", "another member offers it", "task not known"],
)
def test_it_is_left_to_placement_where_a_member_may_have_it(reports: list[EngineReport]) -> None:
    require_task(reports, "/v1/score", "m")
