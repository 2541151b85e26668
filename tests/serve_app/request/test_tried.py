"""Which members one request may still ask, after some broke."""

from __future__ import annotations

import pytest

from serve_app.quarantine import Quarantine
from serve_app.request.failover import Tried

FOR_S = 60.0
MINE, OTHER = b"mine", b"other"
MOST = 4


class Streams:
    """Requests that lose their members, at one gateway."""

    def __init__(self) -> None:
        self.quarantine = Quarantine(FOR_S)
        self.tried = Tried()

    def lose(self, member: str, *, with_others: int = 0, begun: bool = True) -> None:
        incident = self.quarantine.broke(MINE, member, 0.0, begun=begun)
        self.tried.broke(incident, begun=begun)
        self.tried.failed(member)
        self.others_notice(member, with_others)

    def others_notice(self, member: str, count: int) -> None:
        for number in range(count):
            self.quarantine.broke(OTHER + bytes([number]), member, 0.01, begun=True)


@pytest.mark.parametrize("begun", [True, False])
def test_a_request_that_broke_two_members_alone_may_ask_no_other(begun: bool) -> None:
    streams = Streams()
    streams.lose("a", begun=begun)
    assert not streams.tried.is_spent(MOST)
    streams.lose("b", begun=begun)
    assert streams.tried.is_spent(MOST)


def test_a_stream_that_is_cut_with_others_is_not_blamed() -> None:
    streams = Streams()
    for member in ("a", "b", "c"):
        streams.lose(member, with_others=3)
    assert streams.tried.broken == 0
    assert not streams.tried.is_spent(MOST)


def test_whoever_notices_first_is_heard_again_when_the_others_have_noticed() -> None:
    streams = Streams()
    streams.lose("a")
    streams.lose("b")
    assert streams.tried.may_be_innocent
    streams.others_notice("b", 1)
    assert not streams.tried.may_be_innocent
    assert not streams.tried.is_spent(MOST)


def test_there_is_nothing_to_wait_for_where_no_byte_had_come() -> None:
    streams = Streams()
    streams.lose("a", begun=False)
    assert not streams.tried.may_be_innocent
    streams.lose("b", begun=False)
    assert not streams.tried.may_be_innocent


def test_a_body_that_a_member_answered_completely_is_not_blamed_for_a_break_before_or_after() -> None:
    streams = Streams()
    streams.lose("a")
    streams.quarantine.served(MINE, 0.1)  # another client asked the same
    streams.lose("b")
    assert streams.tried.broken == 0
    assert not streams.tried.is_spent(MOST)


def test_company_counts_though_it_was_answered_since() -> None:
    streams = Streams()
    streams.lose("a", with_others=1)
    streams.quarantine.served(OTHER + bytes([0]), 0.1)
    assert streams.tried.broken == 0
