"""How the benchmark of upgrades counts what failed, and what it applies."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from benchmarks.load import Sample
from benchmarks.upgrades import (
    APPLICATION,
    ENGINES,
    MODEL,
    STEPS,
    Upgrade,
    application,
    figures_of_step,
    served,
    watch,
)

from deployments.cli.serve_api import ServeApi
from serve_app.settings import parse_args
from serve_app.upgrades import Effect, changes

GOOD = Sample(status=200, sent_at=0.0, ended_at=1.0)
BAD = replace(GOOD, error="ended without [DONE]")


def test_one_failure_in_one_repeat_is_seen() -> None:
    whole = Upgrade(took_s=20.0, streams=[GOOD] * 3, probes=[GOOD], spare=1)
    cut = replace(whole, streams=[GOOD, BAD], probes=[BAD])
    figures = {figure.name: figure for figure in figures_of_step("rolled", [whole, cut, whole])}
    assert figures["rolled: failed streams, all repeats"].values == (1.0,)
    assert figures["rolled: failed new requests, all repeats"].values == (1.0,)
    assert figures["rolled: streams"].values == (3.0, 2.0, 3.0)


def test_each_step_changes_what_it_is_named_for(tmp_path: Path) -> None:
    def settings(args: dict[str, Any]) -> Any:
        return parse_args(served(args, 1, tmp_path)["applications"][0]["args"], source="test")

    before = settings(application())
    effects = {}
    for name, args in STEPS.items():
        if args is not None:
            after = settings(args)
            effects[name] = {(change.model, change.effect) for change in changes(before, after)}
            before = after
    gateways = (None, Effect.ROLLED)
    assert effects["gateway rolled"] == {gateways}
    assert effects["engine rolled"] == {gateways, (MODEL, Effect.ROLLED)}
    assert effects["model added"] == {gateways, ("second", Effect.ADDED)}


async def test_a_replica_counts_from_when_it_has_a_place() -> None:
    """Serve leaves out the node of one that waits for room."""
    done = asyncio.Event()
    placed, waiting = {"state": "RUNNING", "node_id": "n"}, {"state": "STARTING"}
    answers = [[placed, placed], [placed, placed, {**placed, "state": "STOPPING"}, waiting], None]

    class Api:
        def details(self) -> dict[str, Any]:
            replicas = answers.pop(0)
            if not answers:
                done.set()
            parts = {} if replicas is None else {f"{ENGINES}{MODEL}": {"replicas": replicas}}
            return {"applications": {APPLICATION: {"deployments": parts}}}

    assert await asyncio.to_thread(watch, cast("ServeApi", Api()), done) == 1
