"""Client libraries with their default features; docs/clients.md shows the same table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from client_endpoint import TENANT, endpoint, run_client
from client_table import AGENTS, LIBRARIES, table
from support.client_tools import ClientTools

DOCS = Path(__file__).parents[2] / "docs" / "clients.md"
SCRIPTS = Path(__file__).parent / "scripts"
PLAN = [
    {"calls": [{"name": "weather", "arguments": {"city": "Paris"}}]},
    {"text": "It is sunny in Paris."},
]


@pytest.mark.parametrize("runtime", ["node", "openai2", "openai3"])
async def test_the_libraries_default_features_work(
    client_tools: ClientTools, tmp_path: Path, runtime: str
) -> None:
    libraries = [library for library in LIBRARIES if library.runtime == runtime]
    async with endpoint(PLAN, tmp_path / "store") as running:
        environment = {"PROMPTLY_URL": running.url, "PROMPTLY_KEY": running.keys[TENANT]}
        if runtime == "node":
            command = [str(client_tools.node), str(SCRIPTS / "node.mjs")]
            environment["PROMPTLY_MODULES"] = str(client_tools.node_modules)
        else:
            command, more = client_tools.python(runtime, SCRIPTS / f"{runtime}.py")
            environment |= more
        command += [library.script_name for library in libraries]
        status, output, errors = await run_client(command, tmp_path, environment)
    print(errors)
    assert status == 0
    outcomes = dict(json.loads(line) for line in output.splitlines() if line.startswith("["))
    for library in libraries:
        became = outcomes[library.script_name]
        refused = {name: said for name, said in became.items() if said != "yes"}
        assert refused.keys() == library.explained.keys(), (library.name, refused)
        assert all(text in refused[name] for name, (text, _) in library.explained.items()), refused
        assert set(became) == set(library.features)


def test_the_docs_show_what_was_tested() -> None:
    _, _, rest = DOCS.read_text().partition("<!-- clients -->\n")
    shown, _, _ = rest.partition("\n<!-- /clients -->")
    assert shown == table()
    tests = (Path(__file__).parent / "test_client_agents.py").read_text()
    assert all(f"async def {test}(" in tests for _, _, names in AGENTS for test in names)
