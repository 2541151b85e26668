"""kubectl and Helm, in a folder with what the page on Kubernetes names, and the server that they talk to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from support.kubernetes_api import Cluster, kubernetes_api

ROOT = Path(__file__).parents[2]
CHART = ROOT / "config" / "chart"
LIMIT_S = 120.0
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
HELM = shutil.which("helm", path=PATH)

needs_helm = pytest.mark.skipif(HELM is None, reason="helm is not installed (make setup installs it)")
needs_kubectl = pytest.mark.skipif(
    shutil.which("kubectl") is None,
    reason="kubectl is not installed (Debian: apt-get install kubernetes-client)",
)

PROMPTLY = """#!{python}
import sys
sys.path.insert(0, {root!r})
from deployments.cli.main import main
sys.exit(main([*sys.argv[1:], "--offline"]))
"""
"""`promptly`, which asks no hub for the shapes of models."""


@dataclass(frozen=True)
class Workplace:
    folder: Path
    cluster: Cluster
    environment: Mapping[str, str]

    def run(self, command: str) -> str:
        """What it prints, once it has ended well and has warned of nothing."""
        done = self._done(command)
        assert (done.returncode, done.stderr) == (0, ""), f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def refused(self, command: str) -> str:
        done = self._done(command)
        assert done.returncode != 0, f"{command}\n{done.stdout}"
        return done.stderr

    def _done(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )


@contextmanager
def workplace(folder: Path, config: Path, without: Sequence[str] = ()) -> Iterator[Workplace]:
    """``config``: its models get GPUs with a name, for which a manifest needs no option. ``without``: kinds
    that the cluster does not know."""
    shutil.copytree(CHART, folder / "config" / "chart", ignore=shutil.ignore_patterns("files"))
    document = yaml.safe_load(config.read_text(encoding="utf-8"))
    for model in document["applications"][0]["args"]["models"]:
        model["engine"]["accelerator_type"] = "H100"
    (folder / "config.yaml").write_text(yaml.safe_dump(document))
    promptly = folder / "bin" / "promptly"
    promptly.parent.mkdir()
    promptly.write_text(PROMPTLY.format(python=sys.executable, root=str(ROOT)))
    promptly.chmod(0o755)
    with kubernetes_api(without) as cluster:
        own = {
            "PATH": os.pathsep.join([str(promptly.parent), PATH]),
            "HOME": str(folder / "home"),
            "KUBECONFIG": str(cluster.kubeconfig(folder / "kubeconfig.yaml")),
        }
        yield Workplace(folder, cluster, own)
