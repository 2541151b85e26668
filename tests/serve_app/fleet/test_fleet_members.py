"""What an engine reports, and what a gateway makes of it."""

from __future__ import annotations

import pytest
from samples import make_member, make_report

from serve_app.fleet import EngineState, FleetTable


def test_the_secret_is_in_no_repr() -> None:
    report, member = make_report(), make_member()
    table = FleetTable(["m"])
    table.update("m", [report], 0.0)
    said = f"{report!r} {report} {member!r} {table.members('m')!r} {[report]!r}"
    assert "s3cr3t" not in said
    assert "http://127.0.0.1/a" in said


@pytest.mark.parametrize(
    ("running", "waiting", "in_flight", "load"),
    [(0, 0, 0, 0), (2, 3, 0, 5), (2, 3, 4, 5), (0, 0, 4, 4), (1, 0, 4, 4), (10, 5, 1, 15)],
)
def test_the_load_is_the_larger_of_what_is_reported_and_what_was_sent(
    running: int, waiting: int, in_flight: int, load: int
) -> None:
    assert make_member(running=running, waiting=waiting, in_flight=in_flight).load == load


@pytest.mark.parametrize(
    ("state", "serves"),
    [(EngineState.WARMING, False), (EngineState.READY, True), (EngineState.DRAINING, False)],
)
def test_only_a_ready_engine_serves(state: EngineState, serves: bool) -> None:
    assert make_member(state=state).can_serve(0.0) is serves


def test_a_member_is_named_by_its_replica() -> None:
    assert make_member("replica-7").name == "replica-7"
