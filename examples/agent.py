"""An agent with two tools, a calculator and the files of a folder, that calls them until it can answer.

    python examples/agent.py "Which Python does pyproject.toml ask for, and what is 17 * 23?"

It needs a model that calls tools (config/local.yaml's small one shows the protocol, no more) and `pip install
openai`. The endpoint is PROMPTLY_URL (default: http://127.0.0.1:8000), the key PROMPTLY_API_KEY. All turns of
a session go to the replica that has its prefix in the cache: `x-session-id` says which session it is.
"""

from __future__ import annotations

import argparse
import ast
import json
import operator
import os
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from openai import OpenAI

TURNS = 8
LONGEST = 4000
"""Characters of a file."""

MOST_TOKENS = 1024
"""Of one answer: a small model may not find its end."""

OPERATORS: Mapping[type, Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "calculate",
            "description": "The value of an expression of numbers with + - * / and brackets.",
            "parameters": {
                "type": "object",
                "properties": {"expression": {"type": "string"}},
                "required": ["expression"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "The text of a file in the working folder.",
            "parameters": {
                "type": "object",
                "properties": {"name": {"type": "string"}},
                "required": ["name"],
            },
        },
    },
]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task")
    parser.add_argument("--model", help="default: the first that the endpoint lists")
    parser.add_argument(
        "--folder", type=Path, default=Path(), help="whose files it may read; default: this one"
    )
    options = parser.parse_args()

    url = os.environ.get("PROMPTLY_URL", "http://127.0.0.1:8000")
    client = OpenAI(
        base_url=f"{url}/v1",
        api_key=os.environ.get("PROMPTLY_API_KEY", "none"),
        default_headers={"x-session-id": uuid.uuid4().hex},
    )
    model = options.model or client.models.list().data[0].id
    messages: list[Any] = [{"role": "user", "content": options.task}]
    for _ in range(TURNS):
        message = (
            client.chat.completions.create(
                model=model, messages=messages, tools=TOOLS, max_completion_tokens=MOST_TOKENS
            )
            .choices[0]
            .message
        )
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            print(message.content)
            return 0
        for call in message.tool_calls:
            result = called(options.folder, call.function.name, call.function.arguments)
            print(f"{call.function.name}({call.function.arguments}) = {result[:80]!r}", file=sys.stderr)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    print(f"It did not answer within {TURNS} turns.", file=sys.stderr)
    return 1


def called(folder: Path, name: str, arguments: str) -> str:
    """What a tool says. A mistake is told to the model, which may do better."""
    try:
        given = json.loads(arguments)
        if name == "calculate":
            return str(value(ast.parse(given["expression"], mode="eval").body))
        if name == "read_file":
            return shortened(inside(folder, given["name"]).read_text(encoding="utf-8"))
    except (ArithmeticError, KeyError, OSError, SyntaxError, TypeError, ValueError) as error:
        return f"error: {error}"
    return f"error: there is no tool {name!r}"


def shortened(text: str) -> str:
    """A model that is not told takes the beginning for the whole."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}\n[{len(text) - LONGEST} more characters]"


def inside(folder: Path, name: str) -> Path:
    """Raises: ValueError: it is not in the folder. What a model asks for is not to be trusted."""
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ValueError(f"{name!r} is outside the folder")
    return path


def value(node: ast.expr) -> float:
    """Raises: ValueError: it is no sum. ``eval`` would run whatever a model writes."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](value(node.left), value(node.right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -value(node.operand)
    raise ValueError("expected numbers with + - * / and brackets")


if __name__ == "__main__":
    sys.exit(main())
