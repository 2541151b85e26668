"""A few thousand wrong requests at a gateway behind HAProxy: nothing of ours fails, hangs or stays taken.

The long form, with a real engine too, is `scripts/benchmarks/fuzz.py`.
"""

from __future__ import annotations

from itertools import islice
from urllib.parse import urlsplit

from benchmarks.fuzz import Report, fuzz
from benchmarks.fuzz_requests import Fuzzer
from support.front_door import door
from support.gateway import FAST, MODEL, Running, gateway
from support.graph import ADMIN_TOKEN

BROKEN = 1500


def nothing_is_wrong(report: Report) -> None:
    assert not report.own_5xx, report.own_5xx[:3]
    assert not report.hangs, report.hangs[:3]
    assert not report.unanswered, report.unanswered[:3]


async def still_serves(running: Running) -> None:
    await running.until_idle()
    assert (await running.post("still there?", max_tokens=2)).status == 200


async def test_wrong_requests_behind_haproxy_break_nothing() -> None:
    async with gateway(FAST, limits={"request_timeout_s": 10.0}) as running, door(running.url) as front:
        fuzzer = Fuzzer(1, urlsplit(front.url).netloc, [MODEL], ADMIN_TOKEN)
        report = await fuzz(front.url, islice(fuzzer, BROKEN))
        nothing_is_wrong(report)
        assert report.sent == BROKEN
        # They are no requests that one refusal fits all.
        assert {200, 400, 401, 403, 404, 405, 415} <= report.statuses.keys()
        await still_serves(running)
