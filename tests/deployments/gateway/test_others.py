"""What a gateway learns of the others in each round, whatever one of them says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from deployments.gateway.others.others import GatewayReport, Others
from serve_app.gateways.shares import Share
from serve_app.routing.prompt import NAME_BYTES
from serve_app.routing.sent_prompts import SentPrompt, SentPrompts


class World:
    """One gateway, and what the others report. Rounds are made by the test."""

    def __init__(self, heard: Callable[[Sequence[SentPrompt]], None] | None = None) -> None:
        self.reports: list[GatewayReport] = []
        self.share = Share("me", 1)
        self.sent = SentPrompts()
        self.members: list[str] = []
        self.others = Others(
            self.ask,
            None,
            self.share,
            sent=SentPrompts(),
            demand=lambda: 1,
            running=lambda: 1,
            learned=lambda: None,
            heard=heard or self.hear,
            round_s=3600.0,
        )

    async def ask(self) -> list[GatewayReport]:
        return self.reports

    def hear(self, prompts: Sequence[SentPrompt]) -> None:
        self.members += [prompt.member for prompt in prompts]

    def other_sends(self, *members: str, gateway: str = "other") -> None:
        """Another gateway sends a prompt to each of these, and its round ends."""
        for number, member in enumerate(members):
            self.sent.add("m", member, [number.to_bytes(NAME_BYTES)])
        self.reports = [GatewayReport(gateway, None, 2, self.sent.close_round())]


@asynccontextmanager
async def world(heard: Callable[[Sequence[SentPrompt]], None] | None = None) -> AsyncIterator[World]:
    made = World(heard)
    try:
        yield made
    finally:
        await made.others.close()


async def test_each_prompt_is_heard_once_although_it_is_told_in_several_rounds() -> None:
    async with world() as made:
        made.other_sends("a")
        await made.others.look()
        made.other_sends("b")
        await made.others.look()
        await made.others.look()
        assert made.members == ["a", "b"]


async def test_a_gateway_that_was_late_twice_misses_nothing() -> None:
    async with world() as made:
        for member in "abc":
            made.other_sends(member)
        await made.others.look()
        assert made.members == ["a", "b", "c"]


async def test_many_prompts_are_all_heard() -> None:
    async with world() as made:
        names = [f"member-{number}" for number in range(100)]
        made.other_sends(*names)
        await made.others.look()
        assert made.members == names


async def test_a_gateway_that_has_started_anew_is_heard_from_its_first_round_on() -> None:
    async with world() as made:
        for member in "ab":
            made.other_sends(member)
            await made.others.look()
        made.sent = SentPrompts()
        made.other_sends("c", gateway="another")
        await made.others.look()
        assert made.members == ["a", "b", "c"]


async def test_limits_are_shared_whatever_becomes_of_what_was_heard() -> None:
    def fails(_: Sequence[SentPrompt]) -> None:
        raise RuntimeError

    async with world(fails) as made:
        made.other_sends("a")
        await made.others.look()
        assert made.share.of(100) < 100
        made.reports = [GatewayReport("other", None, 2, ((9, b"of another version"),))]
        await made.others.look()
        assert made.share.of(100) < 100
