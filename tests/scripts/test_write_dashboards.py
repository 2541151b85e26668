"""The dashboards ask for what the code has: names of metrics, labels and events."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import pytest
import yaml
from dashboards.contract import Dashboard, as_json
from dashboards.vllm_names import Vllm
from write_dashboards import TARGET, dashboards, main, text_of

from deployments.gateway.lookup.counters import CacheCounters
from serve_app.monitoring.intake import HITS, Outcome
from serve_app.monitoring.metrics import METRICS, Kind
from serve_app.planning import rules as planned
from serve_app.settings.alerts import AlertSettings
from serve_app.traffic import Traffic

ALL = dashboards(AlertSettings())
PANELS = [panel for dashboard in ALL.values() for panel in dashboard.panels]
QUERIES = [query for panel in PANELS for query in panel.queries]

KIND_OF = {"_gauge_cls": "gauge", "_counter_cls": "counter", "_histogram_cls": "histogram"}


def test_the_files_are_up_to_date() -> None:
    assert {path.name for path in TARGET.iterdir()} == ALL.keys()
    for name, dashboard in ALL.items():
        assert (TARGET / name).read_text() == text_of(dashboard), "run `python scripts/write_dashboards.py`"


def test_every_metric_of_a_panel_is_one_that_is_exported() -> None:
    exported = {each.exported for each in Vllm} | {planned.KV_TOKENS, planned.TOKEN_S, planned.TOKENS_PER_S}
    for metric in METRICS:
        ends = ("_bucket", "_count", "_sum") if metric.kind is Kind.HISTOGRAM else ("",)
        exported |= {metric.exported + end for end in ends}
    exported |= {f"{each.exported}_bucket" for each in Vllm if each.kind == "histogram"}
    asked = {name for query in QUERIES for name in re.findall(r"\b(?:ray_|promptly:)\w+", query.expr)}
    assert len(asked) > 25
    assert asked - exported == set()


@pytest.mark.parametrize(
    ("label", "known"),
    [
        ("event", {field.name for kind in (Traffic, CacheCounters) for field in fields(kind)}),
        ("outcome", set(get_args(Outcome))),
        ("tier", set(HITS)),
        ("kind", {"input", "output", "cached"}),
        ("state", {"ready", "running", "waiting"}),
    ],
)
def test_every_value_of_a_label_is_one_that_is_counted(label: str, known: set[str]) -> None:
    asked = {value for query in QUERIES for value in re.findall(rf'\b{label}="(\w+)"', query.expr)}
    assert asked <= known


def metrics_of_vllm() -> Iterator[tuple[str, str]]:
    """Names and kinds in the installed vLLM's sources: what its loggers make through the classes that Ray's
    metrics replace."""
    spec = find_spec("vllm")
    assert spec is not None
    assert spec.origin is not None
    for file in ("v1/metrics/loggers.py", "v1/spec_decode/metrics.py"):
        tree = ast.parse((Path(spec.origin).parent / file).read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                names = [each.value for each in node.keywords if each.arg == "name"]
                if node.func.attr in KIND_OF and names and isinstance(names[0], ast.Constant):
                    yield str(names[0].value), KIND_OF[node.func.attr]
        if file.startswith("v1/spec_decode"):  # names and texts in pairs, all of them counters
            pairs = (each for each in ast.walk(tree) if isinstance(each, ast.Tuple) and len(each.elts) == 2)
            for pair in pairs:
                first = pair.elts[0]
                if isinstance(first, ast.Constant) and str(first.value).startswith("vllm:"):
                    yield str(first.value), "counter"


@pytest.mark.parametrize("metric", Vllm)
def test_the_installed_vllm_has_the_metric(metric: Vllm) -> None:
    found = dict(metrics_of_vllm())
    assert found.get(metric.own_name) == metric.kind


def test_a_metric_of_vllm_is_named_as_its_wrapper_and_ray_do() -> None:
    from ray._private.telemetry.open_telemetry_metric_recorder import NAMESPACE

    spec = find_spec("vllm")
    assert spec is not None
    assert spec.origin is not None
    wrapper = (Path(spec.origin).parent / "v1" / "metrics" / "ray_wrappers.py").read_text()
    assert r're.sub(r"[^a-zA-Z0-9_]", "_", name)' in wrapper
    assert NAMESPACE == "ray"
    assert Vllm.OUTPUT_TOKENS.exported == "ray_vllm_generation_tokens_total"
    assert Vllm.PREFILL_TIME.exported == "ray_vllm_request_prefill_time_seconds"


def test_a_link_of_rays_dashboard_sets_the_source_of_every_panel() -> None:
    import ray

    folder = Path(ray.__file__).parent / "dashboard" / "modules" / "metrics" / "dashboards"
    base = json.loads((folder / "serve_grafana_dashboard_base.json").read_text())
    (variable,) = [each for each in base["templating"]["list"] if each["type"] == "datasource"]
    for dashboard in ALL.values():
        shown = as_json(dashboard)
        (ours,) = [each for each in shown["templating"]["list"] if each["type"] == "datasource"]
        assert (ours["name"], ours["query"]) == (variable["name"], variable["query"])
        drawn = [panel for panel in shown["panels"] if panel["type"] != "row"]
        assert {panel["datasource"]["uid"] for panel in drawn} == {f"${{{variable['name']}}}"}


@pytest.mark.parametrize("dashboard", ALL.values(), ids=ALL)
def test_panels_have_numbers_of_their_own_and_do_not_overlap(dashboard: Dashboard) -> None:
    panels = as_json(dashboard)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(taken)) == len(taken)
    assert max(x for x, _ in taken) < 24
    for panel in dashboard.panels:
        assert panel.title
        assert panel.description.endswith(".")
        assert panel.queries


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian: apt-get install prometheus)"
)
def test_prometheus_can_read_every_query(tmp_path: Path) -> None:
    def readable(expr: str) -> str:
        return expr.replace("$model", ".*").replace("$window", "5m")

    rules = [
        {"record": f"panel:{number}", "expr": readable(query.expr)} for number, query in enumerate(QUERIES)
    ]
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_objective_of_an_application_is_followed(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    model = {"id": "m", "upstreams": [{"name": "u", "url": "http://127.0.0.1:1/v1"}]}

    def objective(ttft_p95_ms: float | None) -> list[str]:
        args = {"models": [model], "alerts": {"ttft_p95_ms": ttft_p95_ms}}
        application = {"name": "a", "route_prefix": "/", "import_path": "serve_app.app:build", "args": args}
        config.write_text(
            yaml.safe_dump({"http_options": {"host": "127.0.0.1"}, "applications": [application]})
        )
        assert main(["--config", str(config), "--output", str(tmp_path)]) == 0
        panels = json.loads((tmp_path / "promptly_capacity.json").read_text())["panels"]
        (panel,) = [each for each in panels if "objective" in each["title"]]
        return [each["expr"] for each in panel["targets"] if each["legendFormat"] == "objective"]

    assert objective(250.0) == ["vector(0.25)"]
    assert objective(None) == []


def test_a_config_that_is_wrong_is_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("applications: []\n")
    assert main(["--config", str(config), "--output", str(tmp_path / "out")]) == 1
    assert str(config) in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
