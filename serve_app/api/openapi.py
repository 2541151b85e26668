"""``/openapi.json``: the table of routes as an OpenAPI 3.1 document; ``/docs``: the same as a web page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

import msgspec

from serve_app.api import schemas
from serve_app.api.routes import EVENT_STREAM, JSON, ROUTES, Access, Operation, Parameter, Route
from serve_app.errors import PromptlyError

PATH_PARAMETER = re.compile(r"\{(\w+)(?::path)?\}")
SECURITY = "key"
ACCESS = {
    Access.OPEN: "No key.",
    Access.KEY: "A key, if `auth` requires keys.",
    Access.ADMIN: "An admin key; with `auth: loopback` the admin token of the start.",
}


def document(version: str, root_path: str, models: Sequence[str]) -> dict[str, Any]:
    """``root_path`` is the application's route prefix; ``models`` are the names that requests may use."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Promptly",
            "version": version,
            "description": "An OpenAI-compatible endpoint. Fields that are not listed go to the engine.",
        },
        "servers": [{"url": root_path or "/"}],
        "paths": {openapi_path(route): _path_item(route) for route in ROUTES},
        "components": {
            "schemas": {"Error": schemas.ERROR, "Model": {"type": "string", "examples": list(models)}},
            "securitySchemes": {SECURITY: {"type": "http", "scheme": "bearer"}},
        },
    }


def openapi_path(route: Route) -> str:
    """OpenAPI has one notation for all parameters; the description says that slashes are allowed."""
    return PATH_PARAMETER.sub(r"{\1}", route.path)


def _path_item(route: Route) -> dict[str, Any]:
    item: dict[str, Any] = {
        method.lower(): _operation(route, method, operation) for method, operation in route.operations.items()
    }
    if "GET" in route.operations:
        item["head"] = _operation(route, "HEAD", route.operations["GET"])
    return item


def _operation(route: Route, method: str, operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": f"{method.lower()}{re.sub(r'[^a-z0-9]+', '_', route.path.lower()).rstrip('_')}",
        "summary": operation.summary,
        "description": ACCESS[route.access],
        "parameters": [
            *_path_parameters(route),
            *(_parameter(each, "query") for each in operation.query),
            *(_parameter(each, "header") for each in operation.headers),
        ],
        "responses": _responses(method, operation),
        "security": [] if route.access is Access.OPEN else [{SECURITY: []}, {}],
    }
    if operation.takes:
        content = {kind: {"schema": schema} for kind, schema in operation.takes.items()}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _path_parameters(route: Route) -> Iterator[dict[str, Any]]:
    for name in PATH_PARAMETER.findall(route.path):
        yield {
            "name": name,
            "in": "path",
            "required": True,
            "description": "May hold slashes.",
            "schema": {"type": "string", "minLength": 1},
        }


def _parameter(parameter: Parameter, location: str) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": location,
        "required": False,
        "description": parameter.description,
        "schema": dict(parameter.schema),
    }


def _responses(method: str, operation: Operation) -> dict[str, Any]:
    has_body = method != "HEAD"
    content = {kind: {"schema": schema} for kind, schema in operation.gives.items()} if has_body else {}
    headers = {
        each.name: {"description": each.description, "schema": dict(each.schema)}
        for each in operation.answer_headers
    }
    good = {
        str(status): {"description": operation.summary, "headers": headers, "content": content}
        for status in operation.statuses
    }
    return _errors(operation.errors, has_body, may_stream=EVENT_STREAM in operation.gives) | good


def _errors(
    errors: Sequence[type[PromptlyError]] | None, has_body: bool, *, may_stream: bool
) -> dict[str, Any]:
    """One response for each status. An engine's own refusals (4xx) keep their status."""
    known = list(all_errors()) if errors is None else list(errors)
    names: dict[int, list[str]] = {}
    for error in known:
        names.setdefault(error.status, []).append(error.type)
    content = {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}} if has_body else {}
    responses: dict[str, Any] = {
        str(status): {"description": ", ".join(dict.fromkeys(types)), "content": content}
        for status, types in sorted(names.items())
    }
    if errors is None:
        responses["4XX"] = {"description": "The engine's own refusal.", "content": content}
    return responses


def all_errors() -> Iterator[type[PromptlyError]]:
    """All classes of the error tree."""
    waiting: list[type[PromptlyError]] = [PromptlyError]
    while waiting:
        error = waiting.pop()
        yield error
        waiting += error.__subclasses__()


# ---- the page ----------------------------------------------------------------------------------------------

PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"
"""The page loads nothing and runs no script."""

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
summary { cursor: pointer; padding: .3rem 0; } code, pre { font-family: ui-monospace, monospace; }
summary b { display: inline-block; min-width: 4.5rem; } table { border-collapse: collapse; margin: .5rem 0; }
td, th { border: 1px solid #8886; padding: .2rem .5rem; text-align: left; vertical-align: top; }
pre { overflow: auto; border: 1px solid #8886; padding: .5rem; } :root { color-scheme: light dark; }
"""


def page(described: Mapping[str, Any]) -> str:
    """The document as one self-contained HTML page."""
    info = described["info"]
    operations = "\n".join(
        _page_operation(method, path, operation)
        for path, item in described["paths"].items()
        for method, operation in item.items()
        if method != "head"
    )
    names = ", ".join(described["components"]["schemas"]["Model"]["examples"])
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        f"<title>{escape(info['title'])}</title><style>{STYLE}</style>"
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info['description'])} "
        f"The same for programs: <code>openapi.json</code>.</p><p>Models: {escape(names)}</p>{operations}"
    )


def _page_operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    parameters = [(f"{each['name']} ({each['in']})", each["description"]) for each in operation["parameters"]]
    answers = [(status, each["description"]) for status, each in operation["responses"].items()]
    headers = operation["responses"].get("200", {}).get("headers", {})
    answered = [(name, each["description"]) for name, each in headers.items()]
    bodies = "".join(
        f"<p>Body, <code>{escape(kind)}</code>:</p><pre>{escape(_as_text(content['schema']))}</pre>"
        for kind, content in operation.get("requestBody", {}).get("content", {}).items()
    )
    return (
        f"<details><summary><b>{method.upper()}</b> <code>{escape(path)}</code> "
        f"{escape(operation['summary'])}</summary><p>{escape(operation['description'])}</p>"
        f"{_page_table('Parameter', parameters)}{bodies}{_page_table('Status', answers)}"
        f"{_page_table('Response header', answered)}</details>"
    )


def _page_table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    cells = "".join(f"<tr><td><code>{escape(name)}</code><td>{escape(text)}" for name, text in rows)
    return f"<table><tr><th>{title}<th>{cells}</table>" if cells else ""


def _as_text(schema: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode()
