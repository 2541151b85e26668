"""Every panel of the dashboards draws something of a live application: a real Prometheus scrapes it while it
answers."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import openai
import pytest
import yaml
from dashboards.contract import Panel, Query
from support.server import MODEL, ROOT, TRIED, Server, get_json
from write_dashboards import dashboards

from deployments.cli.main import main as promptly
from deployments.launcher.ports import free_port
from serve_app.settings.alerts import AlertSettings

OBSERVABILITY = ROOT / "config" / "observability"
SOON_S = 180.0
"""Ray's processes report every ten seconds, and a rate needs two scrapes that differ."""

PANELS = [panel for dashboard in dashboards(AlertSettings()).values() for panel in dashboard.panels]

NOTHING_YET = {
    "ray_vllm_num_preemptions_total": "no engine has run out of KV cache: the panel shows 0",
}
"""Metrics of which a healthy application has no series, and why."""

SYSTEM = "You help to test the panels of a dashboard. " * 20
"""Longer than a block of the engine's prefix cache."""

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="prometheus is not installed (apt-get install prometheus)"
)


class Prometheus:
    """A running one."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def ask(self, expr: str) -> list[dict[str, Any]]:
        """The series of an instant query that have a value."""
        query = urllib.parse.urlencode({"query": expr})
        found = get_json(f"{self.url}/api/v1/query?{query}")["data"]["result"]
        return [each for each in found if each["value"][1] != "NaN"]

    def shows(self, query: Query) -> bool:
        return bool(self.ask(query.expr.replace("$model", MODEL).replace("$window", "1m")))


@contextmanager
def prometheus(folder: Path, served: Server) -> Iterator[Prometheus]:
    """With the shipped config, but for the application's address and the pace."""
    ready = json.loads((served.log.parent / "ready.json").read_text())
    config = yaml.safe_load((OBSERVABILITY / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(OBSERVABILITY / "rules.yml"), str(folder / "plan*.yml")]
    (job,) = [each for each in config["scrape_configs"] if each["job_name"] == "promptly"]
    assert job["static_configs"][0]["targets"] == ["127.0.0.1:9102"], "the usual port of `make serve`"
    job["static_configs"] = []
    job["file_sd_configs"] = [{"files": [f"{ready['folder']}/ray/prom_metrics_service_discovery.json"]}]
    config["scrape_configs"] = [job]
    plan = ["plan", str(served.log.parent / "config.yaml"), "--offline", "--rules", str(folder / "plan.yml")]
    assert promptly(plan) == 0
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    command = ["prometheus", f"--config.file={folder / 'prometheus.yml'}"]
    command += [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        yield Prometheus(port)
    finally:
        process.terminate()
        process.wait(30)


async def load(server: Server, number: int) -> None:
    """The same question again is a hit, long common prompts are found in the prefix cache, and one request is
    in experiments. The first time more streams come than the engine runs at once, so that some wait."""
    async with openai.AsyncOpenAI(
        base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120
    ) as client:

        async def ask(text: str, fields: dict[str, Any] | None = None, **headers: str) -> None:
            stream = await client.chat.completions.create(
                model=MODEL,
                messages=[{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}],
                temperature=0,
                max_tokens=12,
                stream=True,
                extra_headers=headers,
                extra_body=fields,
            )
            async for _ in stream:
                pass

        for _ in range(2):
            await ask(f"Repeat one two three one two three, {number} times.")
        await ask(f"Try {number}.", {"prompt": {"id": TRIED}})

        async def one_of_many(each: int) -> None:
            with suppress(openai.RateLimitError):  # on a slow machine some wait for too long
                await ask(f"Say {each} of {number}.", **{"cache-control": "no-store"})

        await asyncio.gather(*map(one_of_many, range(20 if number == 1 else 1)))


async def test_no_panel_is_empty(served: Server, tmp_path: Path) -> None:
    with prometheus(tmp_path, served) as found:
        waiting = [(panel, query) for panel in PANELS for query in panel.queries]
        deadline, number = time.monotonic() + SOON_S, 0
        while waiting and time.monotonic() < deadline:
            number += 1
            await load(served, number)
            waiting = [each for each in waiting if not await asyncio.to_thread(shows, found, each[1])]
        assert [f"{panel.title}: {query.expr}" for panel, query in waiting] == []

        missing = {name for panel in PANELS for name in names(panel) if not found.ask(name)}
        assert missing <= NOTHING_YET.keys(), "a panel may say 0 for something that exists, and for no other"
        assert found.ask('label_replace(up{job="ray"}, "a", "b", "", "")')
        rules = get_json(f"{found.url}/api/v1/rules")["data"]["groups"]
        assert {group["name"] for group in rules} == {"promptly", "promptly-plan"}
        assert {rule["health"] for group in rules for rule in group["rules"]} == {"ok"}


def shows(found: Prometheus, query: Query) -> bool:
    try:
        return found.shows(query)
    except OSError:  # it has not begun to listen
        return False


def names(panel: Panel) -> set[str]:
    return {name for query in panel.queries for name in re.findall(r"\b(?:ray_|promptly:)\w+", query.expr)}


def test_the_grafana_that_ray_configures_loads_the_dashboards(served: Server) -> None:
    start = Path(json.loads((served.log.parent / "ready.json").read_text())["folder"])
    provisioning = start / "ray" / "session_latest" / "metrics" / "grafana" / "provisioning" / "dashboards"
    (provider,) = yaml.safe_load((provisioning / "default.yml").read_text())["providers"]
    loaded = {path.name for path in Path(provider["options"]["path"]).iterdir()}
    assert {"promptly_overview.json", "promptly_capacity.json", "serve_grafana_dashboard.json"} <= loaded
