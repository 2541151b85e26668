"""Experiments in the gateway: who gets which arm, what is kept apart, and what a shadow may take."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from local_cache import local_cache
from prompt_files import prompt_folder
from scripted_member import Member, answers, listening
from sim_engine import SimEngine
from support.gateway import MODEL, Answered, Running, SimSettings, as_sent, chat, gateway
from support.graph import eventually
from support.meter import Meter

from deployments.gateway.experiments.shadows import TENANT
from deployments.gateway.experiments.trials import Trials
from deployments.gateway.monitoring.monitor import Measured
from serve_app.request.record import RequestRecord
from serve_app.settings.experiments import ExperimentSettings

QUICK = SimSettings(itl_ms=0, tokens=3, keep_bodies=400)
COOL: dict[str, Any] = {"name": "cool", "percent": 50.0, "settings": {"temperature": 0.0, "max_tokens": 7}}
ALL = COOL | {"percent": 100.0}


def tried(*arms: Mapping[str, Any], **given: Any) -> dict[str, Any]:
    return {"experiments": [{"name": "heat", "arms": list(arms or (COOL,)), **given}]}


async def asked(running: Running, session: str, text: str = "hi", **fields: Any) -> Answered:
    answer = await running.post(text, {"x-session-id": session}, **fields)
    assert answer.status == 200, answer.body
    return answer


def bodies(running: Running) -> list[dict[str, Any]]:
    return [as_sent(each["body"]) for engine in running.engines for each in engine.stats().seen]


async def test_sessions_keep_their_arm_which_the_response_names() -> None:
    async with gateway(QUICK, **tried()) as one, gateway(QUICK, **tried()) as two:
        arms = {}
        for number in range(20):
            seen = [await asked(running, f"s{number}") for running in (one, two, one)]
            (arms[number],) = {answer.headers["x-experiment"] for answer in seen}
            assert bodies(one)[-1].get("max_tokens") == (7 if arms[number] == "heat=cool" else None)
        assert set(arms.values()) == {"heat=cool", "heat=control"}


async def test_requests_outside_are_as_they_were() -> None:
    async with gateway(QUICK, **tried(ALL, tenants=["other"])) as running:
        answer = await asked(running, "s")
        assert "x-experiment" not in answer.headers
        assert bodies(running) == [chat("hi")]


async def test_a_client_has_no_say_unless_the_setting_gives_it_one() -> None:
    for allowed, arm in ((False, "heat=control"), (True, "heat=cool")):
        async with gateway(QUICK, **tried(COOL | {"percent": 0.0}, allow_choice=allowed)) as running:
            answer = await running.post("hi", {"x-experiment": "heat=cool"})
            assert answer.headers["x-experiment"] == arm


async def test_a_model_that_is_tried_is_named_honestly() -> None:
    records: list[RequestRecord] = []
    arm = {"name": "small", "percent": 100.0, "model": "small"}
    async with small() as second, two_models(second, records, **tried(arm)) as running:
        answer = await asked(running, "s")
        assert answer.headers["x-experiment"] == "heat=small"
        assert answer.headers["x-model"] == "small"
        assert answer.headers["x-served-by"] == "s0"
        assert answer.json["model"] == "small"
        assert running.requests() == [0]
    assert [(record.model, record.experiment) for record in records] == [("small", "heat=small")]


@asynccontextmanager
async def small(settings: SimSettings = QUICK, **upstream: Any) -> AsyncIterator[dict[str, Any]]:
    """A model of that name, with an engine of its own."""
    engine = SimEngine(replace(settings, model="small"))
    member = {"name": "s0", "url": f"{await engine.start()}/v1", "kind": "vllm", "health_period_s": 0.05}
    try:
        yield {"id": "small", "upstreams": [member | upstream]}
    finally:
        await engine.stop()


def two_models(second: Mapping[str, Any], records: list[RequestRecord], **args: Any) -> Any:
    def keep(record: RequestRecord) -> None:
        if record.endpoint == "chat":
            records.append(record)

    return gateway(QUICK, more_models=[second], sinks=[keep], **args)


REPLY = {
    "reply/1.md": "---\nvariables: [name]\n---\nAnswer {{name}} briefly.",
    "reply/2.md": "---\nvariables: [name]\n---\nAnswer {{name}} at length.",
    "reply/3.md": "---\nvariables: [other]\n---\nAnswer {{other}}.",
    "labels.yaml": 'labels: {reply: {production: "1", next: "2"}}',
}
ANN = {"id": "reply", "variables": {"name": "Ann"}}


async def test_versions_of_a_prompt_are_compared(tmp_path: Path) -> None:
    arm = {"name": "long", "percent": 100.0, "prompt_version": "next"}
    args = tried(arm, prompt="reply") | prompt_folder(tmp_path, REPLY)
    async with gateway(QUICK, **args) as running:
        answer = await asked(running, "s", prompt=ANN)
        assert (answer.headers["x-experiment"], answer.headers["x-prompt"]) == ("heat=long", "reply@2")
        assert bodies(running)[-1]["messages"][0]["content"] == "Answer Ann at length."
        assert "x-experiment" not in (await asked(running, "s")).headers


async def test_a_version_that_does_not_fit_leaves_the_request_alone(tmp_path: Path) -> None:
    arm = {"name": "other", "percent": 100.0, "prompt_version": "3"}
    args = tried(arm, prompt="reply") | prompt_folder(tmp_path, REPLY)
    async with gateway(QUICK, **args) as running:
        answer = await asked(running, "s", prompt=ANN)
        assert "x-experiment" not in answer.headers
        assert answer.headers["x-prompt"] == "reply@1"


async def test_the_cache_never_mixes_arms(tmp_path: Path) -> None:
    async with (
        local_cache(tmp_path, race=False) as cache,
        gateway(QUICK, handles=cache.handles, **cache.args, **tried(COOL, allow_choice=True)) as running,
    ):

        async def status(arm: str, text: str) -> str:
            answer = await running.post(text, {"x-experiment": f"heat={arm}"})
            assert answer.headers["x-experiment"] == f"heat={arm}"
            return answer.headers["x-cache"]

        async def near() -> bool:
            return await status("control", "it works how") == "semantic"

        assert await status("control", "how it works") == "miss"
        assert await eventually(near, within_s=10)  # near texts of one arm do share
        assert await status("cool", "how it works") == "miss"
        assert await status("cool", "how it works") == "exact"
        # What an arm sets is what this client asks by itself: its own answers stay apart all the same.
        own = {"temperature": 0.0, "max_tokens": 7}
        plain = await running.post("how it works", {"x-experiment": "heat=control"}, **own)
        assert plain.headers["x-cache"] == "miss"


async def test_an_arm_that_fails_ends_its_experiment(caplog: pytest.LogCaptureFixture) -> None:
    given = tried(COOL, stop={"min_requests": 20})["experiments"][0]
    settings = ExperimentSettings.model_validate(given)
    meter = Meter()
    trials = Trials((settings,), meter, None, period_s=3600)
    try:
        for number in range(40):
            trials.measured(("heat", "control"), ttft_ms=10, e2e_ms=20)
            trials.measured(("heat", "cool"), failed=number % 2 == 0, ttft_ms=10, e2e_ms=20)
        with caplog.at_level(logging.WARNING, logger="ray.serve"):
            await trials.judge()
        assert "50.0% of cool failed" in trials.stopped["heat"]
        assert any("heat has ended" in line for line in caplog.messages)
        assert meter.values["promptly_experiment_stopped"] == {("heat",): 1.0}
    finally:
        await trials.close()


async def test_a_verdict_ends_it_in_all_gateways() -> None:
    experiments = tried(ALL)["experiments"]
    settings = (ExperimentSettings.model_validate(experiments[0]),)
    first = Trials(settings, None, None, period_s=3600)

    async def others() -> list[Any]:
        return [Measured("first", b"", first.state()), Measured("old", b""), Measured("odd", b"", b"?")]

    second = Trials(settings, None, others, period_s=3600)
    try:
        assert first.judged("heat", "cool", "worse")
        assert not first.judged("heat", "none", "worse")
        await first.judge()
        await second.judge()
        assert second.stopped == first.stopped
        assert "worse" in second.stopped["heat"]
    finally:
        await first.close()
        await second.close()


async def test_what_a_judge_says_ends_an_experiment_in_all_gateways() -> None:
    """Each gateway has seen too little by itself."""
    settings = (ExperimentSettings.model_validate(tried(ALL)["experiments"][0]),)
    states: list[bytes] = []

    async def others() -> list[Any]:
        return [Measured("other", b"", state) for state in states]

    first, second = (Trials(settings, None, others, period_s=3600) for _ in range(2))
    try:
        for number in range(40):
            trials = (first, second)[number % 2]
            trials.scored("heat=control", number, 0.8)
            trials.scored("heat=cool", number, 0.3)
            trials.scored("heat=none", number, 0.0)
            trials.scored("odd", number, 0.0)
        await first.judge()
        assert not first.stopped
        states.append(second.state())
        await first.judge()
        assert "`worse`" in first.stopped["heat"]
        control, cool = first.described()[0]["arms"]  # type: ignore[misc]
        assert control["judged"] == {"answers": 20, "sessions": 20, "score": 0.8}
        assert (cool["judged"]["verdict"], cool["judged"]["change"]) == ("worse", -0.5)
    finally:
        await first.close()
        await second.close()


async def test_a_judge_that_finds_an_arm_as_good_ends_nothing() -> None:
    settings = (ExperimentSettings.model_validate(tried(ALL)["experiments"][0]),)
    trials = Trials(settings, None, None, period_s=3600)
    try:
        for number in range(60):
            for arm in ("control", "cool"):
                trials.scored(f"heat={arm}", number, 0.5 + number % 5 / 10)
        await trials.judge()
        assert not trials.stopped
        cool = trials.described()[0]["arms"][1]  # type: ignore[index]
        assert cool["judged"]["verdict"] == "undecided"
    finally:
        await trials.close()


async def test_administrators_see_figures_and_tell_verdicts() -> None:
    async with gateway(QUICK, **tried(ALL)) as running:
        assert (await asked(running, "s")).headers["x-experiment"] == "heat=cool"

        async def seen() -> bool:
            (shown,) = (await running.get("/admin/experiments"))["experiments"]
            return shown["stopped"] is None and [arm["requests"] for arm in shown["arms"]] == [0, 1]

        assert await eventually(seen, within_s=10)
        verdict = {"experiment": "heat", "arm": "cool", "verdict": "worse"}
        for wrong, status in (({"verdict": "bad"}, 400), ({"arm": "none"}, 404), ({"more": 1}, 400)):
            assert (await running.send(verdict | wrong, "/admin/experiments/verdict")).status == status
        told = await running.send(verdict, "/admin/experiments/verdict")
        assert told.json == verdict
        assert (await asked(running, "s")).headers["x-experiment"] == "heat=control"
        (shown,) = (await running.get("/admin/experiments"))["experiments"]
        assert "worse" in shown["stopped"]


async def test_the_metrics_of_arms_have_bounded_labels() -> None:
    meter = Meter()
    async with gateway(QUICK, meter=meter, **tried()) as running:
        for number in range(12):
            await asked(running, f"s{number}")

        async def counted() -> bool:
            return sum(meter.values.get("promptly_experiment_requests", {}).values()) == 12

        assert await eventually(counted, within_s=10)
        labels = meter.labels["promptly_experiment_requests"]
        assert labels <= {("heat", arm, "answered") for arm in ("cool", "control")}


# ---- shadows ----

SHADOW = {"kind": "shadow"}


async def shadows(meter: Meter, event: str, number: float = 1) -> bool:
    return meter.values.get("promptly_experiment_shadows", {}).get(("heat", event), 0) >= number


async def test_a_shadow_asks_the_candidate_after_the_clients_answer() -> None:
    meter = Meter()
    records: list[RequestRecord] = []
    async with gateway(QUICK, meter=meter, sinks=[records.append], **tried(ALL, **SHADOW)) as running:
        answer = await asked(running, "s")
        assert "x-experiment" not in answer.headers
        assert await eventually(lambda: shadows(meter, "answered"), within_s=10)
        first, second = bodies(running)
        assert "max_tokens" not in first
        assert (second["max_tokens"], second["temperature"]) == (7, 0.0)
        observed = meter.observed["promptly_experiment_e2e_seconds"]
        assert {key: len(values) for key, values in observed.items()} == {
            ("heat", "control"): 1,
            ("heat", "cool"): 1,
        }
        await running.until_idle()
        assert (await running.traffic())["requests"] == 1
    assert sum(record.endpoint == "chat" for record in records) == 1


async def test_streams_are_shadowed_as_streams() -> None:
    meter = Meter()
    async with gateway(QUICK, meter=meter, **tried(ALL, **SHADOW)) as running:
        await asked(running, "s", stream=True)
        assert await eventually(lambda: shadows(meter, "answered"), within_s=10)
        assert set(meter.observed["promptly_experiment_ttft_seconds"]) == {
            ("heat", "control"),
            ("heat", "cool"),
        }


async def test_a_busy_engine_gets_no_shadow() -> None:
    meter = Meter()
    slow = SimSettings(itl_ms=20.0, tokens=400, keep_bodies=9)
    limits = {"max_wait_s": 0.2, "max_load": 0.01}
    async with (
        gateway(slow, meter=meter, **tried(ALL, **SHADOW, shadow=limits)) as running,
        running.stream("a long answer", max_tokens=400) as stream,
    ):
        await stream.event()
        await asked(running, "s", max_tokens=1)
        assert await eventually(lambda: shadows(meter, "dropped_busy"), within_s=10)
        assert running.requests() == [2]


async def test_too_many_shadows_are_dropped() -> None:
    meter = Meter()
    slow = SimSettings(itl_ms=20.0, tokens=400)
    limits = {"max_queued": 1, "max_load": 0.01, "max_wait_s": 30.0}
    async with (
        gateway(slow, meter=meter, **tried(ALL, **SHADOW, shadow=limits)) as running,
        running.stream("a long answer", max_tokens=400) as stream,
    ):
        await stream.event()
        for number in range(3):
            await asked(running, f"s{number}", max_tokens=1)
        assert await eventually(lambda: shadows(meter, "dropped_full", 2), within_s=10)


async def test_a_shadow_ends_as_soon_as_a_request_waits() -> None:
    meter = Meter()
    arm = {"name": "small", "percent": 100.0, "model": "small"}
    args = tried(arm, **SHADOW, models=[MODEL])
    async with (
        small(SimSettings(itl_ms=50.0, tokens=2000), max_requests=1) as slow,
        gateway(QUICK, more_models=[slow], meter=meter, **args) as running,
    ):
        await asked(running, "s")
        assert await eventually(lambda: shadows(meter, "sent"), within_s=10)
        answer = await running.send(chat("hi", max_tokens=1) | {"model": "small"})
        assert answer.status == 200, answer.body
        assert await eventually(lambda: shadows(meter, "yielded"), within_s=10)


async def test_a_candidate_that_is_away_hurts_nobody() -> None:
    meter = Meter()
    arm = {"name": "small", "percent": 100.0, "model": "small"}
    args = tried(arm, **SHADOW, shadow={"max_wait_s": 0.1})
    async with small() as away:
        pass
    async with gateway(QUICK, more_models=[away], meter=meter, ready=False, **args) as running:

        async def served() -> bool:
            return (await running.post("hi", {"x-session-id": "s"})).status == 200

        assert await eventually(served, within_s=10)
        assert await eventually(lambda: shadows(meter, "dropped_busy"), within_s=10)


async def test_a_candidate_that_fails_is_measured_as_that() -> None:
    meter = Meter()
    arm = {"name": "small", "percent": 100.0, "model": "small"}
    failing = Member(answers(500, {"error": {"message": "no"}}))
    async with listening(failing):
        second = {"id": "small", "upstreams": [failing.upstream(health_period_s=0.05)]}
        args = tried(arm, **SHADOW)
        async with gateway(QUICK, more_models=[second], meter=meter, **args) as running:
            await asked(running, "s")
            assert await eventually(lambda: shadows(meter, "failed"), within_s=10)
            assert (await asked(running, "s")).status == 200


async def test_a_shadow_is_neither_stored_nor_counted(tmp_path: Path) -> None:
    meter = Meter()
    async with (
        local_cache(tmp_path, race=False) as cache,
        gateway(
            QUICK, handles=cache.handles, meter=meter, tenants=["acme"], **cache.args, **tried(ALL, **SHADOW)
        ) as running,
    ):
        headers = running.headers("acme") | {"x-session-id": "s"}
        assert (await running.post("how it works", headers)).headers["x-cache"] == "miss"
        assert await eventually(lambda: shadows(meter, "answered"), within_s=10)
        again = await running.post("how it works", headers, temperature=0.0, max_tokens=7)
        assert again.headers["x-cache"] == "miss"
        hit = await running.post("how it works", headers)
        assert hit.headers["x-cache"] == "exact"
        assert Counter(key[0] for key in meter.labels.get("promptly_tenant_requests", ())).keys() <= {"acme"}
        assert TENANT not in str(meter.labels)


async def test_what_guards_judge_is_not_shadowed() -> None:
    meter = Meter()
    guard = {"name": "g", "function": "guarded:refuses_haste"}
    async with gateway(QUICK, meter=meter, guardrails=[guard], **tried(ALL, **SHADOW)) as running:
        await asked(running, "s")
        await asyncio.sleep(0)
        assert running.requests() == [1]
        assert "promptly_experiment_shadows" not in meter.values
