"""The start follows the logs of engines' replicas."""

from __future__ import annotations

from pathlib import Path

import pytest

from deployments.launcher.engine_logs import LOOK_EVERY_S, SAY_EVERY_S, EngineLogs

SHARDS = "Loading safetensors checkpoint shards: {0:3d}% Completed | {1}/4 [00:10<00:30, 10.0s/it]"


class Start:
    """Logs of one engine and of a gateway, and a clock of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.logs = folder / "session_latest" / "logs"
        self.logs.mkdir(parents=True)
        self.now = 0.0
        self.said: list[str] = []
        self.watch = EngineLogs(folder, lambda: self.now, self.said.append)

    def write(self, name: str, text: str) -> None:
        with (self.logs / name).open("a", encoding="utf-8") as file:
            file.write(text)

    def look(self, seconds: float = LOOK_EVERY_S) -> int:
        self.now += seconds
        return self.watch.progress()


@pytest.fixture
def start(tmp_path: Path) -> Start:
    start = Start(tmp_path)
    start.write("worker-1-02-7.out", ":job_id:02\n:actor_name:ServeReplica:promptly:Engine:m\n")
    start.write(
        "worker-2-02-8.out", ":job_id:02\n:actor_name:ServeReplica:promptly:Gateway\nStarting to load model\n"
    )
    return start


def test_stages_are_said_once_and_shares_now_and_then(start: Start) -> None:
    before = start.look()
    assert start.said == ["    Engine:m: its process runs, importing vLLM"]
    assert start.look() == before, "nothing new was written"
    start.write("worker-1-02-7.out", "INFO Starting to load model x...\n")
    for percent, files in ((0, 0), (25, 1)):
        start.write("worker-1-02-7.err", SHARDS.format(percent, files) + "\r")
        start.look()
    assert start.look(SAY_EVERY_S) == 3
    start.write("worker-1-02-7.err", SHARDS.format(50, 2) + "\r")
    assert start.look() == 3, "so soon after the last it is not said"
    assert start.said[1:] == [
        "    Engine:m: loading weights: 0 of 4 files (0 %), 00:30 left",
        "    Engine:m: loading weights: 1 of 4 files (25 %), 00:30 left",
    ]


def test_a_line_is_read_when_it_is_whole(start: Start) -> None:
    start.look()
    start.write("worker-1-02-7.out", "INFO Starting to lo")
    start.look()
    start.write("worker-1-02-7.out", "ad model x...\n")
    start.look()
    assert start.said[1:] == ["    Engine:m: loading weights"]


def test_the_warm_up_is_said_once_though_it_has_many_requests(start: Start) -> None:
    for kind in ("first request", "batch of 4"):
        line = f"INFO 2026-11-23 07:30:26,684 promptly_Engine:m 8vh8 -- warm-up: {kind}\n"
        start.write("worker-1-02-7.err", line)
        start.look()
    assert start.said == ["    Engine:m: warm-up: first request"]
    start.look(SAY_EVERY_S)
    assert start.said[1:] == ["    Engine:m: warm-up: batch of 4"]


def test_before_ray_has_a_session_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert EngineLogs(tmp_path / "none").progress() == 0
