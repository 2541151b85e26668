"""The rules for Prometheus are those of the gateways: what makes an alert fire there makes it fire here."""

from __future__ import annotations

import shutil
import subprocess
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.alert_cases import AFTER_S, CASES, EVERY, USUAL_S, WRONG_S, feed
from write_alert_rules import TARGET, alert_name, main, rules_file

from deployments.gateway.monitoring.monitor import Monitor
from serve_app.alerts import rules_of
from serve_app.alerts.watch import Change
from serve_app.monitoring.metrics import BUCKETS_S, Metric
from serve_app.settings.alerts import AlertSettings

SCRAPE_S = 15
RULES = {rule.name: rule for rule in rules_of(EVERY)}

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian: apt-get install prometheus)"
)


class Page:
    """What Ray's Prometheus page would show: each series' value now."""

    def __init__(self) -> None:
        self._values: defaultdict[str, float] = defaultdict(float)
        self._buckets: defaultdict[tuple[str, tuple[tuple[str, str], ...]], list[int]] = defaultdict(
            lambda: [0] * (len(BUCKETS_S) + 1)
        )

    def observe(self, metric: Metric, value: float, labels: Mapping[str, str], operation: str = "") -> None:
        self._buckets[metric.exported, tuple(labels.items())][bisect_left(BUCKETS_S, value)] += 1

    def add(self, metric: Metric, number: float, labels: Mapping[str, str]) -> None:
        self._values[series(metric.exported, labels)] += number

    def set(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        self._values[series(metric.exported, labels)] = value

    def read(self) -> dict[str, float]:
        page = dict(self._values)
        for (name, labels), counts in self._buckets.items():
            for bound, reached in zip((*map(str, BUCKETS_S), "+Inf"), accumulate(counts), strict=True):
                page[series(f"{name}_bucket", {**dict(labels), "le": bound})] = reached
            page[series(f"{name}_count", dict(labels))] = sum(counts)
        return page


def series(name: str, labels: Mapping[str, str]) -> str:
    return f"{name}{{{', '.join(f'{key}={value!r}' for key, value in labels.items())}}}".replace("'", '"')


def scraped(rule: str) -> list[dict[str, str]]:
    """The page of a gateway every 15 s, as promtool reads it."""
    page, now = Page(), 0.0
    monitor = Monitor(["m"], EVERY, page, clock=lambda: now)
    seen: defaultdict[str, list[str]] = defaultdict(list)
    usual, wrong = CASES[rule]
    for second in range(USUAL_S + WRONG_S + AFTER_S):
        now = float(second)
        if second % SCRAPE_S == 0:
            for name, value in page.read().items():
                values = seen[name]
                values += ["_"] * (second // SCRAPE_S - len(values))
                values.append(f"{value:g}" if value < 1e5 else str(int(value)))
        is_wrong = USUAL_S <= second < USUAL_S + WRONG_S
        if second % 2:
            feed(monitor, wrong if is_wrong else usual)
    return [{"series": name, "values": " ".join(values)} for name, values in seen.items()]


def promtool(*arguments: str) -> None:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_file_is_up_to_date() -> None:
    assert TARGET.read_text() == rules_file(AlertSettings()), "run `python scripts/write_alert_rules.py`"


@needs_promtool
def test_prometheus_accepts_the_rules(tmp_path: Path) -> None:
    promtool("check", "rules", str(TARGET))
    every = tmp_path / "rules.yml"
    every.write_text(rules_file(EVERY))
    promtool("check", "rules", str(every))


@needs_promtool
@pytest.mark.parametrize("rule", CASES)
def test_an_alert_fires_and_clears_in_prometheus(tmp_path: Path, rule: str) -> None:
    every = yaml.safe_load(rules_file(EVERY))
    (group,) = every["groups"]
    group["rules"] = [each for each in group["rules"] if each["labels"]["rule"] == rule]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(every))
    firing = f'count(ALERTS{{alertname="{alert_name(RULES[rule])}", alertstate="firing", model="m"}})'

    def expects(second: int, *, fires: bool) -> dict[str, Any]:
        samples = [{"labels": "{}", "value": 1}] if fires else []
        return {"expr": firing, "eval_time": f"{second}s", "exp_samples": samples}

    test = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "30s",
        "tests": [
            {
                "interval": f"{SCRAPE_S}s",
                "input_series": scraped(rule),
                "promql_expr_test": [
                    expects(USUAL_S - 25, fires=False),
                    expects(USUAL_S + WRONG_S - 5, fires=True),
                    expects(USUAL_S + WRONG_S + AFTER_S - 10, fires=False),
                ],
            }
        ],
    }
    (tmp_path / "test.yml").write_text(yaml.safe_dump(test))
    promtool("test", "rules", str(tmp_path / "test.yml"))


@needs_promtool
def test_a_gateway_that_is_gone_hides_no_incident_of_another(tmp_path: Path) -> None:
    """Its series held many; the new gateway's begins with the first incident."""
    (tmp_path / "rules.yml").write_text(rules_file(AlertSettings()))
    rule = RULES["stalled_streams"]
    name = "ray_promptly_stalled_streams_total"
    firing = f'count(ALERTS{{alertname="{alert_name(rule)}", alertstate="firing", model="m"}})'
    gone = {"series": f'{name}{{model="m", WorkerId="old"}}', "values": "100x40 stale"}
    came = {"series": f'{name}{{model="m", WorkerId="new"}}', "values": "_x41 1 2 3 3x10"}
    samples = [{"labels": "{}", "value": 1}]
    test = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": f"{SCRAPE_S}s",
                "input_series": [gone, came],
                "promql_expr_test": [
                    {"expr": firing, "eval_time": f"{50 * SCRAPE_S}s", "exp_samples": samples}
                ],
            }
        ],
    }
    (tmp_path / "test.yml").write_text(yaml.safe_dump(test))
    promtool("test", "rules", str(tmp_path / "test.yml"))


def test_the_limit_is_said_as_the_setting_has_it() -> None:
    rule = RULES["stalled_streams"]
    assert f"limit {EVERY.stalled_streams} in 5 minutes" in str(Change(rule, "m", True, 3.0))
    assert f"the limit {EVERY.stalled_streams} in 5 minutes." in rules_file(EVERY)


def test_the_settings_of_an_application_are_followed(tmp_path: Path) -> None:
    config, output = tmp_path / "config.yaml", tmp_path / "rules.yml"
    args = {
        "models": [{"id": "m", "upstreams": [{"name": "u", "url": "http://127.0.0.1:1/v1"}]}],
        "alerts": {"ttft_p95_ms": 250.0, "ttft_p99_ms": None},
    }
    application = {"name": "a", "route_prefix": "/", "import_path": "serve_app.app:build", "args": args}
    local = {"host": "127.0.0.1"}
    config.write_text(yaml.safe_dump({"http_options": local, "applications": [application]}))
    assert main(["--config", str(config), "--output", str(output)]) == 0
    rules = {rule["alert"]: rule["expr"] for rule in yaml.safe_load(output.read_text())["groups"][0]["rules"]}
    assert "> 0.25 and" in rules["PromptlyTtftP95"]
    assert "PromptlyTtftP99" not in rules


def test_a_wrong_config_is_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("applications: []\n")
    output = tmp_path / "rules.yml"
    assert main(["--config", str(config), "--output", str(output)]) == 1
    assert str(config) in capsys.readouterr().err
    assert not output.exists()
