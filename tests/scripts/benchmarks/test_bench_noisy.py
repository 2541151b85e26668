"""What the noisy tenant of the benchmark sends, at a gateway in this process."""

from __future__ import annotations

import json
import random
from itertools import islice

from benchmarks import noisy
from benchmarks.load import Sample
from support.gateway import gateway, meanwhile
from support.graph import eventually

from serve_app.openai.bounds import refuse_excess
from serve_app.settings import parse_args

URL = "http://127.0.0.1:1"


def test_its_application_has_what_the_mixture_asks_for() -> None:
    settings = parse_args(noisy.application(URL, URL), source="test")
    assert [model.id for model in settings.models] == [noisy.MODEL, noisy.LONG_MODEL]
    assert settings.embedder is not None
    assert settings.cache is not None
    assert settings.cache.join
    assert noisy.TRANSCRIPTIONS in (settings.models[1].upstreams[0].paths or ())


def test_it_asks_for_more_than_one_tenant_may_have() -> None:
    limits = parse_args(noisy.application(URL, URL), source="test").limits
    asked = noisy.TIMES_ITS_SHARE * noisy.SHARE + noisy.READERS + noisy.LISTS
    assert limits.share_of_requests < limits.max_concurrent_requests < asked
    assert limits.texts_at_embedder < noisy.LISTS * noisy.LIST_TEXTS
    fields = json.loads(noisy.list_of_texts(random.Random(1)).body)
    assert len(fields["input"]) == noisy.LIST_TEXTS
    refuse_excess(fields, limits)


def test_all_readers_ask_for_the_same_answer() -> None:
    [one, other] = (next(noisy.joined_requests()) for _ in range(2))
    [again] = islice(noisy.joined_requests(), 1)
    assert one in (other, again), "a round ended between two of them at most"
    assert json.loads(one.body)["model"] == noisy.LONG_MODEL
    assert "temperature" not in json.loads(one.body)


def test_the_quiet_tenants_questions_are_new_in_each_phase() -> None:
    assert len({noisy.quiet_request(number).body for number in range(300)}) == 300


async def test_its_recordings_arrive_slowly_and_are_not_refused_for_that() -> None:
    media = {"media": {"max_uploads_per_tenant": 1}}
    upstream = {"paths": ["/v1/chat/completions", noisy.TRANSCRIPTIONS]}
    async with gateway(upstream=upstream, **media) as running, meanwhile(noisy.slow_upload(running.url)):

        async def is_arriving() -> bool:
            headers = {"content-type": "multipart/form-data; boundary=x"}
            async with running.http.post(noisy.TRANSCRIPTIONS, data=b"x", headers=headers) as response:
                return response.status == 429

        assert await eventually(is_arriving, within_s=20)


def test_errors_are_the_quiet_tenants_own() -> None:
    fine, failed = Sample(200, 0.0, 1.0, ttft_s=0.1), Sample(429, 0.0, 1.0, error="status 429")
    assert noisy.errors([fine, failed]) == 1
    assert noisy.slower(noisy.Run([fine], [fine], [failed])) == 1.0
