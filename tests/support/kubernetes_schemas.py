"""What Kubernetes' and its operators' own schemas accept, of the kinds that a manifest has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
from jsonschema.protocols import Validator

Json = dict[str, Any]
SCHEMAS = Path(__file__).parent / "schemas"


def kind_schema(kind: str) -> Json:
    for file in SCHEMAS.glob("*.json"):
        known = json.loads(file.read_text(encoding="utf-8"))
        if kind in known["kinds"]:
            return {**known["kinds"][kind], "$defs": known["$defs"]}
    raise AssertionError(f"no schema of {kind}")


@cache
def _validator(kind: str) -> Validator:
    schema = kind_schema(kind)
    return jsonschema.validators.validator_for(schema)(schema)


def pod_templates(service: Json) -> Iterator[tuple[str, Json]]:
    """Of a RayService: what the group is called, and its pods."""
    cluster = service["spec"]["rayClusterConfig"]
    yield "head", cluster["headGroupSpec"]["template"]
    for group in cluster["workerGroupSpecs"]:
        yield group["groupName"], group["template"]


def faults(document: Json) -> list[str]:
    """Why a cluster would refuse an object, each with the path of the field."""
    kind = document["kind"]
    found = [_said(each) for each in _validator(kind).iter_errors(document)]
    if kind == "RayService" and not found:
        for name, template in pod_templates(document):
            pods = _validator("PodTemplateSpec").iter_errors(template)
            found += [f"pods of {name}: {_said(each)}" for each in pods]
    return found


def _said(error: jsonschema.ValidationError) -> str:
    return f"{error.json_path.removeprefix('$.')}: {error.message[:300]}"
