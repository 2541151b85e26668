"""`config/observability/`: files for programs that are not ours."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from serve_app.settings import parse_args

FOLDER = Path(__file__).parents[2] / "config" / "observability"
LOOPBACK = "127.0.0.1"
SERVICES: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]


def test_compose_has_what_stands_beside_an_application() -> None:
    assert SERVICES.keys() == {"qdrant", "prometheus", "grafana", "jaeger", "otel-collector"}


@pytest.mark.skipif(
    shutil.which("docker-compose") is None,
    reason="docker-compose is not installed (Debian: apt-get install --no-install-recommends docker-compose)",
)
def test_docker_compose_accepts_the_file() -> None:
    """Its schema and its mounts; that needs no container engine."""
    done = subprocess.run(
        ["docker-compose", "-f", str(FOLDER / "compose.yaml"), "config"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout)["services"].keys() == SERVICES.keys()


def test_no_two_services_listen_at_one_port() -> None:
    published = [int(port.split(":")[1]) for each in SERVICES.values() for port in each.get("ports", ())]
    own = [9090, int(SERVICES["grafana"]["environment"]["GF_SERVER_HTTP_PORT"])]
    promptly = [8000, 9101, 9102]  # its door, HAProxy's page and Ray's, which are on the host's network too
    ports = [*published, *own, *promptly]
    assert len(ports) == len(set(ports))


def test_the_collector_bounds_its_memory_first_and_sends_in_batches() -> None:
    config = yaml.safe_load((FOLDER / "otel-collector.yml").read_text())
    assert config["processors"].keys() >= {"memory_limiter", "batch"}
    for name, pipeline in config["service"]["pipelines"].items():
        assert pipeline["processors"][0] == "memory_limiter", f"{name}: the first, as its documentation asks"
        assert pipeline["processors"][-1] == "batch"


def test_settings_that_a_comment_names_are_settings() -> None:
    text = (FOLDER / "compose.yaml").read_text()
    comments = " ".join(re.findall(r"#(.*)", text))
    named = re.findall(r"([a-z_]+(?:\.[a-z_]+)+): (https?://[^\s,]+|[^\s,]+)", comments)
    args: dict[str, Any] = {
        "models": [{"id": "chat", "source": "org/chat", "engine": {"accelerator": "cpu"}}],
        "embedder": {"id": "embedder", "source": "org/embedder"},
    }
    for path, value in named:
        *sections, last = path.split(".")
        section = args
        for each in sections:
            section = section.setdefault(each, {})
        section[last] = value
    cache = parse_args(args, source="compose.yaml").cache
    assert cache is not None
    assert cache.qdrant is not None
    port = cache.qdrant.url.rsplit(":", 1)[-1]
    assert f"{LOOPBACK}:{port}:{port}" in SERVICES["qdrant"]["ports"]


@pytest.mark.parametrize("name", SERVICES)
def test_an_image_is_pinned(name: str) -> None:
    assert re.fullmatch(r"[a-z/-]+:v?\d+\.\d+\.\d+", SERVICES[name]["image"])


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_listens_on_the_loopback_interface_only(name: str) -> None:
    service = SERVICES[name]
    if service.get("network_mode") == "host":
        told = {**service.get("environment", {}), **dict(enumerate(service.get("command", ())))}
        assert "ports" not in service
        assert any(LOOPBACK in str(value) for value in told.values())
    else:
        assert service["ports"]
        assert all(port.startswith(f"{LOOPBACK}:") for port in service["ports"])


@pytest.mark.parametrize("name", SERVICES)
def test_a_mounted_file_is_there(name: str) -> None:
    sources = [each.split(":")[0] for each in SERVICES[name].get("volumes", ())]
    files = [each for each in sources if each.startswith(".")]
    assert all((FOLDER / each).exists() for each in files)
    named = set(yaml.safe_load((FOLDER / "compose.yaml").read_text())["volumes"])
    assert {each for each in sources if not each.startswith((".", "/"))} <= named


def test_grafana_is_told_where_prometheus_and_the_dashboards_are() -> None:
    (source,) = yaml.safe_load((FOLDER / "grafana" / "datasources.yml").read_text())["datasources"]
    listens = [each for each in SERVICES["prometheus"]["command"] if "listen-address" in each]
    assert listens == [f"--web.listen-address={source['url'].removeprefix('http://')}"]
    (provider,) = yaml.safe_load((FOLDER / "grafana" / "dashboards.yml").read_text())["providers"]
    assert f"./dashboards:{provider['options']['path']}:ro" in SERVICES["grafana"]["volumes"]


def test_the_collector_passes_on_what_it_takes() -> None:
    config = yaml.safe_load((FOLDER / "otel-collector.yml").read_text())
    for pipeline in config["service"]["pipelines"].values():
        for part in ("receivers", "processors", "exporters"):
            assert pipeline[part]
            assert set(pipeline[part]) <= config[part].keys()
    published = {port.split(":")[-1] for port in SERVICES["otel-collector"]["ports"]}
    listens = [*config["receivers"]["otlp"]["protocols"].values(), config["exporters"]["prometheus"]]
    assert {each["endpoint"].rsplit(":")[-1] for each in listens} == published
    assert config["exporters"]["otlp/jaeger"]["endpoint"].split(":")[0] in SERVICES


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian: apt-get install prometheus)"
)
def test_prometheus_accepts_its_config() -> None:
    done = subprocess.run(
        ["promtool", "check", "config", str(FOLDER / "prometheus.yml")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 rule files found" in done.stdout
