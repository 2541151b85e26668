"""How each client is pointed at this endpoint: environment variables, configuration files, the command that
starts it, and the API that it speaks. Pure: ``deployments.cli.connect`` prints, checks and starts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

KEY_VARIABLE = "PROMPTLY_API_KEY"
"""Where the key is looked for, and where configuration files tell clients to find it."""

NO_KEY = "none"
"""The key for an endpoint without keys: most clients refuse to start without one."""


class Api(Enum):
    """The API that a client speaks; the value is its path."""

    CHAT = "/v1/chat/completions"
    MESSAGES = "/v1/messages"
    RESPONSES = "/v1/responses"


@dataclass(frozen=True, slots=True)
class Target:
    """The endpoint: ``url`` without a path, a model's name, and the key."""

    url: str
    model: str
    key: str

    @property
    def base(self) -> str:
        """The base URL as OpenAI's clients take it."""
        return f"{self.url}/v1"


@dataclass(frozen=True, slots=True)
class Setup:
    """``files``: what to write, by the usual place. ``command``: what starts the client with ``environment``
    alone; empty if nothing does."""

    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Client:
    """``install``: how to get the program of its command."""

    about: str
    api: Api
    setup: Callable[[Target], Setup]
    install: str = ""


def _claude(to: Target) -> Setup:
    models = ("ANTHROPIC_MODEL", *(f"ANTHROPIC_DEFAULT_{tier}_MODEL" for tier in ("OPUS", "SONNET", "HAIKU")))
    return Setup(
        environment={
            "ANTHROPIC_BASE_URL": to.url,
            "ANTHROPIC_AUTH_TOKEN": to.key,
            "ANTHROPIC_API_KEY": "",  # any value would go before the token
            **dict.fromkeys(models, to.model),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
        command=("claude",),
    )


def _codex(to: Target) -> Setup:
    values = {"name": "Promptly", "base_url": to.base, "env_key": KEY_VARIABLE, "wire_api": "responses"}
    rows = "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
    chosen = {"model": to.model, "model_provider": "promptly"}
    top = "".join(f"{name} = {json.dumps(value)}\n" for name, value in chosen.items())
    options = {**chosen, **{f"model_providers.promptly.{name}": value for name, value in values.items()}}
    words = [word for name, value in options.items() for word in ("-c", f"{name}={json.dumps(value)}")]
    return Setup(
        environment={KEY_VARIABLE: to.key},
        files={"~/.codex/config.toml": f"{top}\n[model_providers.promptly]\n{rows}"},
        command=("codex", *words),
    )


def _opencode(to: Target) -> Setup:
    config: dict[str, Any] = {
        "$schema": "https://opencode.ai/config.json",
        "model": f"promptly/{to.model}",
        "provider": {
            "promptly": {
                "npm": "@ai-sdk/openai-compatible",
                "name": "Promptly",
                "options": {"baseURL": to.base, "apiKey": f"{{env:{KEY_VARIABLE}}}"},
                "models": {to.model: {"name": to.model}},
            }
        },
    }
    return Setup(
        environment={KEY_VARIABLE: to.key, "OPENCODE_CONFIG_CONTENT": json.dumps(config)},
        files={"opencode.json": json.dumps(config, indent=2) + "\n"},
        command=("opencode",),
    )


def _open_webui(to: Target) -> Setup:
    return Setup(
        environment={
            "OPENAI_API_BASE_URL": to.base,
            "OPENAI_API_KEY": to.key,
            "ENABLE_OLLAMA_API": "false",
            "DEFAULT_MODELS": to.model,
        },
        command=("open-webui", "serve"),
    )


def _aider(to: Target) -> Setup:
    return Setup(
        environment={"OPENAI_API_BASE": to.base, "OPENAI_API_KEY": to.key},
        files={".aider.conf.yml": f"openai-api-base: {to.base}\nmodel: openai/{to.model}\n"},
        command=("aider", "--model", f"openai/{to.model}"),
    )


def _continue(to: Target) -> Setup:
    model = {
        "name": "Promptly",
        "provider": "openai",
        "model": to.model,
        "apiBase": to.base,
        "apiKey": to.key,
    }
    lines = [
        f"{'- ' if not number else '  '}{name}: {json.dumps(value)}"
        for number, (name, value) in enumerate(model.items())
    ]
    text = "name: Promptly\nversion: 1.0.0\nschema: v1\nmodels:\n" + "".join(f"  {line}\n" for line in lines)
    return Setup(files={"~/.continue/config.yaml": text + "    roles: [chat, edit, apply]\n"})


def _openai(to: Target) -> Setup:
    code = f"""import openai

client = openai.OpenAI()
answer = client.chat.completions.create(
    model={to.model!r}, messages=[{{"role": "user", "content": "Hello"}}]
)
print(answer.choices[0].message.content)
"""
    return Setup({"OPENAI_BASE_URL": to.base, "OPENAI_API_KEY": to.key}, {"example.py": code})


def _anthropic(to: Target) -> Setup:
    code = f"""import anthropic

client = anthropic.Anthropic()
answer = client.messages.create(
    model={to.model!r}, max_tokens=64, messages=[{{"role": "user", "content": "Hello"}}]
)
print(answer.content[0].text)
"""
    return Setup({"ANTHROPIC_BASE_URL": to.url, "ANTHROPIC_API_KEY": to.key}, {"example.py": code})


def _langchain(to: Target) -> Setup:
    code = f"""from langchain_openai import ChatOpenAI

model = ChatOpenAI(model={to.model!r})
print(model.invoke("Hello").content)
"""
    return Setup({"OPENAI_BASE_URL": to.base, "OPENAI_API_KEY": to.key}, {"example.py": code})


def _llama_index(to: Target) -> Setup:
    code = f"""import os

from llama_index.llms.openai_like import OpenAILike

model = OpenAILike(
    model={to.model!r},
    api_base={to.base!r},
    api_key=os.environ[{KEY_VARIABLE!r}],
    is_chat_model=True,
    is_function_calling_model=True,
)
print(model.complete("Hello"))
"""
    return Setup({KEY_VARIABLE: to.key}, {"example.py": code})


def _ai_sdk(to: Target) -> Setup:
    code = f"""import {{ createOpenAI }} from "@ai-sdk/openai";
import {{ generateText }} from "ai";

const promptly = createOpenAI({{ baseURL: {json.dumps(to.base)}, apiKey: process.env.{KEY_VARIABLE} }});
const {{ text }} = await generateText({{ model: promptly({json.dumps(to.model)}), prompt: "Hello" }});
console.log(text);
"""
    return Setup({KEY_VARIABLE: to.key}, {"example.mjs": code})


CLIENTS: Mapping[str, Client] = {
    "claude": Client("Claude Code", Api.MESSAGES, _claude, "npm install -g @anthropic-ai/claude-code"),
    "codex": Client("OpenAI Codex", Api.RESPONSES, _codex, "npm install -g @openai/codex"),
    "opencode": Client("opencode", Api.CHAT, _opencode, "npm install -g opencode-ai"),
    "openwebui": Client("Open WebUI", Api.CHAT, _open_webui, "pip install open-webui"),
    "aider": Client("aider", Api.CHAT, _aider, "pip install aider-chat"),
    "continue": Client("Continue", Api.CHAT, _continue),
    "openai": Client("OpenAI's Python library", Api.CHAT, _openai),
    "anthropic": Client("Anthropic's Python library", Api.MESSAGES, _anthropic),
    "langchain": Client("LangChain", Api.CHAT, _langchain),
    "llamaindex": Client("LlamaIndex", Api.CHAT, _llama_index),
    "ai-sdk": Client("Vercel's AI SDK", Api.RESPONSES, _ai_sdk),
}
"""Clients by the name that ``promptly connect`` takes."""


def probe(api: Api, model: str) -> dict[str, Any]:
    """The body of a small request in this API."""
    message = {"role": "user", "content": "Say hello."}
    if api is Api.RESPONSES:
        return {"model": model, "input": "Say hello.", "max_output_tokens": 16, "store": False}
    return {"model": model, "messages": [message], "max_tokens": 16}


def probe_headers(api: Api, key: str) -> dict[str, str]:
    """Headers in which the API's clients send the key."""
    if api is Api.MESSAGES:
        return {"x-api-key": key, "anthropic-version": "2023-06-01"}
    return {"authorization": f"Bearer {key}"}


def said(api: Api, answer: Mapping[str, Any]) -> str:
    """What the answer to the probe says, shortened.

    Raises:
        KeyError, IndexError, TypeError, AttributeError: it is not an answer in this API.
    """
    if api is Api.MESSAGES:
        text = "".join(block.get("text", "") for block in answer["content"])
    elif api is Api.RESPONSES:
        parts = [part for item in answer["output"] for part in item.get("content") or []]
        text = "".join(part.get("text", "") for part in parts)
    else:
        text = answer["choices"][0]["message"]["content"] or ""
    return " ".join(text.split())[:60]
