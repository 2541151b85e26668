import json

import pytest

from serve_app.errors import BadRequest
from serve_app.openai.bounds import refuse_large
from serve_app.openai.endless import endless_reference
from serve_app.settings import LimitSettings

STRING = {"type": "string"}
LOOP = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}


def found(schema: object) -> str | None:
    return endless_reference({"schema": schema})


@pytest.mark.parametrize(
    ("schema", "reference"),
    [
        ({"$ref": "#"}, "#"),
        ({"$ref": "#/"}, "#/"),
        ({**LOOP, "$ref": "#/$defs/a"}, "#/$defs/a"),
        ({"allOf": [{"$ref": "#"}]}, "#"),
        ({"anyOf": [{"$ref": "#"}, {"$ref": "#/anyOf/0"}]}, "#/anyOf/0"),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "#"),
        ({"type": "array", "items": {"$ref": "#"}, "minItems": 1}, "#"),
        ({"type": "array", "prefixItems": [STRING, {"$ref": "#"}], "minItems": 2}, "#"),
        ({"definitions": {"a/b": {"$ref": "#/definitions/a~1b"}}, "$ref": "#/definitions/a~1b"},
         "#/definitions/a~1b"),
    ],
)  # fmt: skip
def test_a_schema_that_only_leads_back_to_itself_has_no_value(schema: object, reference: str) -> None:
    assert found(schema) == reference


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {"anyOf": [{"$ref": "#"}, STRING]},
        {"type": "object", "properties": {"a": {"$ref": "#"}}},
        {"type": "object", "properties": {"a": {"$ref": "#"}, "b": STRING}, "required": ["b", 7, "c"]},
        {"type": ["object", "null"], "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"type": "array", "items": {"$ref": "#"}},
        {"type": "array", "prefixItems": [STRING, {"$ref": "#"}], "minItems": 1},
        {**LOOP, "type": "string"},
        {**LOOP, "const": 3, "$comment": "#/$defs/a"},
        {"$ref": "#/$defs/missing"},
        {"$ref": "https://example.org/schema"},
        {"$ref": "#anchor"},
        {"$ref": 5},
    ],
)
def test_a_schema_that_may_end_or_that_the_engine_judges_passes(schema: object) -> None:
    assert found(schema) is None


ENDLESS = {"$ref": "#"}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": ENDLESS}}},
         "response_format"),
        ({"structured_outputs": {"json": ENDLESS}}, "structured_outputs.json"),
        ({"structured_outputs": {"json": json.dumps(ENDLESS)}}, "structured_outputs.json"),
        ({"structured_outputs": {"json": '{"\\u0024ref": "#"}'}}, "structured_outputs.json"),
        ({"guided_json": ENDLESS}, "guided_json"),
        ({"text": {"format": {"type": "json_schema", "name": "a", "schema": ENDLESS}}}, "text"),
        ({"output_config": {"format": {"type": "json_schema", "schema": ENDLESS}}}, "output_config"),
        ({"structured_outputs": {"structural_tag": json.dumps({"format": {"type": "tag", "begin": "<a>",
            "content": {"type": "json_schema", "json_schema": ENDLESS}, "end": "</a>"}})}},
         "structured_outputs.structural_tag"),
        ({"tools": [{"type": "function", "function": {"name": "a", "parameters": ENDLESS}}],
          "tool_choice": "required"}, "tools"),
        ({"tools": [{"name": "a", "input_schema": ENDLESS, "strict": True}]}, "tools[0]"),
    ],
)  # fmt: skip
def test_every_api_refuses_it_by_the_name_of_its_field(fields: dict[str, object], param: str) -> None:
    with pytest.raises(BadRequest, match="no value matches: `\\$ref` to '#'") as refused:
        refuse_large(fields, LimitSettings())
    assert (refused.value.param, refused.value.code) == (param, "schema_endless")


EXAMPLES = [{"schema": ENDLESS}]
OPENAPI = {
    "$defs": {
        "Pet": {"oneOf": [{"$ref": "#/$defs/Cat"}]},
        "Cat": {"allOf": [{"$ref": "#/$defs/Pet"}, {"type": "object", "properties": {"age": STRING}}]},
    },
    "$ref": "#/$defs/Pet",
}


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "function", "function": {"name": "a", "parameters": ENDLESS}}]},
        {"tools": [{"name": "a", "input_schema": ENDLESS}], "tool_choice": {"type": "auto"}},
        {"tools": [{"name": "a", "strict": True, "input_schema": STRING, "input_examples": EXAMPLES}]},
        {"guided_json": OPENAPI},
    ],
    ids=["offered", "offered, Messages", "an example", "inheritance as OpenAPI writes it"],
)  # fmt: skip
def test_what_no_engine_makes_a_dead_end_of_passes(fields: dict[str, object]) -> None:
    refuse_large(fields, LimitSettings())


def test_a_property_named_schema_is_not_the_root_of_its_references() -> None:
    tree = {"type": "object", "properties": {"schema": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}}}
    refuse_large({"guided_json": {**tree, "required": ["schema"]}}, LimitSettings())


def test_a_long_chain_of_references_is_followed_to_its_end() -> None:
    names: dict[str, object] = {f"n{i}": {"$ref": f"#/$defs/n{i + 1}"} for i in range(5000)}
    assert found({"$defs": names | {"n5000": STRING}, "$ref": "#/$defs/n0"}) is None
    assert found({"$defs": names | {"n5000": {"$ref": "#"}}, "$ref": "#/$defs/n0"}) is not None
