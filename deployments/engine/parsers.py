"""The parsers of a model's tool calls and reasoning, by its files: kind and chat templates. It reads no
weights and loads no tokenizer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from deployments.engine.model_files import HUB_TIMEOUT_S
from serve_app.engines import ChatFiles, Parsers, parsers_of
from serve_app.model_store import ModelStore
from serve_app.settings import ModelSettings

CONFIG = "config.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
TEMPLATE = "chat_template.jinja"
PROCESSOR_TEMPLATE = "chat_template.json"
MORE_TEMPLATES = "additional_chat_templates"
MISTRAL_TOKENIZER = "tekken.json"
"""vLLM renders prompts of such a model by Mistral's own code."""

FETCHED = (CONFIG, TOKENIZER_CONFIG, TEMPLATE, PROCESSOR_TEMPLATE)
JINJA_MARKS = ("{{", "{%", "{#")

Read = Callable[[str], str | None]
"""The text of a model's file; ``None``: it has no such file."""


def model_parsers(model: ModelSettings, store: ModelStore, *, fetch: bool = False) -> Parsers:
    """The model's parsers by the files on this node; ``fetch``: also by those on the hub."""
    engine = model.managed_engine
    files = chat_files(model.managed_source, model.revision, store, fetch=fetch)
    return parsers_of(engine, with_template(files, engine.options.get("chat_template")))


def chat_files(
    source: str, revision: str | None, store: ModelStore, *, fetch: bool = False
) -> ChatFiles | None:
    """The files of a model in a folder, in ``store`` or in the hub client's cache; with ``fetch`` also from
    the hub, which the engine's start would ask for the same files. ``None``: no ``config.json`` could be
    read. Never raises: the engine itself says what is wrong with a model's files."""
    folder = Path(store.resolve(source)).expanduser()
    if folder.is_dir():
        files = _files(source, lambda name: _text(folder / name))
        more = sorted((folder / MORE_TEMPLATES).glob("*.jinja"))
        if files is not None and more:
            texts = [_text(path) or "" for path in more]
            files = replace(files, template="\n".join([files.template or "", *texts]))
        return files
    return _files(source, lambda name: _from_hub(source, revision, name, fetch=fetch))


def with_template(files: ChatFiles | None, template: Any) -> ChatFiles | None:
    """``template``: vLLM's option ``chat_template``, a path or the text itself, which replaces the
    model's."""
    if files is None or not isinstance(template, str):
        return files
    text = template if any(mark in template for mark in JINJA_MARKS) else _text(Path(template).expanduser())
    return replace(files, template=text)


def _files(source: str, read: Read) -> ChatFiles | None:
    config = _json(read(CONFIG))
    if not config:
        return None
    kinds = {str(config.get("model_type") or ""), *map(str, config.get("architectures") or ())} - {""}
    tokenizer = read(TOKENIZER_CONFIG)
    templates = [
        *filter(None, [read(TEMPLATE)]),
        *_templates(_json(tokenizer)),
        *_templates(_json(read(PROCESSOR_TEMPLATE))),
    ]
    if templates:
        return ChatFiles(source, frozenset(kinds), "\n".join(templates))
    is_read = tokenizer is not None and read(MISTRAL_TOKENIZER) is None
    return ChatFiles(source, frozenset(kinds), "" if is_read else None)


def _templates(values: Mapping[str, Any]) -> Iterator[str]:
    """One template, or several with names."""
    found = values.get("chat_template")
    if isinstance(found, str):
        yield found
    elif isinstance(found, list):
        yield from (str(each.get("template", "")) for each in found if isinstance(each, dict))


def _json(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None


def _from_hub(source: str, revision: str | None, name: str, *, fetch: bool) -> str | None:
    from huggingface_hub import get_session, hf_hub_url, hf_raise_for_status, try_to_load_from_cache
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # not in its __all__

    try:
        found = try_to_load_from_cache(source, name, revision=revision)
        if isinstance(found, str):
            return _text(Path(found))
        if not fetch or name not in FETCHED:
            return None
        url = hf_hub_url(source, name, revision=revision)
        answer = get_session().get(url, headers=build_hf_headers(), timeout=HUB_TIMEOUT_S)
        hf_raise_for_status(answer)
        return str(answer.text)
    except Exception:  # a name that is no hub id, a file that is not there, a hub that does not answer
        return None
