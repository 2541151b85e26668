"""Reads settings, and reports all their errors in one message."""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from serve_app.errors import SettingsError
from serve_app.file_errors import said_of
from serve_app.settings.proxy import ProxySettings
from serve_app.settings.renamed import RENAMED, Renamed, modern
from serve_app.settings.root import Settings

LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})
DEFAULT_HTTP_HOST = "0.0.0.0"
"""Serve's default if a config file names no host."""

PORTS = range(1, 65536)

SERVE_KEYS = frozenset(
    {
        "applications",
        "controller_options",
        "grpc_options",
        "http_options",
        "logging_config",
        "proxy_location",
        "target_capacity",
        "tracing_config",
    }
)
"""Top-level keys of a Serve config file (``ray.serve.schema.ServeDeploySchema``, Ray 2.60)."""

APPLICATION_KEYS = frozenset(
    {
        "args",
        "autoscaling_policy",
        "deployments",
        "external_scaler_enabled",
        "host",
        "import_path",
        "logging_config",
        "name",
        "port",
        "route_prefix",
        "runtime_env",
    }
)
"""Keys of an application in it (``ServeApplicationSchema``)."""

SHOWN_VALUE_CHARS = 80
SECRET_WORDS = ("key", "secret", "token", "password", "authorization", "webhook")
HIDDEN = "(hidden)"
USER_IN_URL = re.compile(r"//[^/\s]*@")
URL_QUERY = re.compile(r"(?<=\S)\?\S+=\S*")


def parse_args(args: Mapping[str, Any], *, source: str, renamed: Mapping[str, Renamed] = RENAMED) -> Settings:
    """Build :class:`Settings` from an application's ``args``. Old names of ``renamed`` settings work.

    ``source`` is their origin in messages, such as a file's path.

    Raises:
        SettingsError: one message with every wrong key: file, key, value, expectation.
    """
    current, _ = modern(args, source=source, table=renamed)
    return _validated(current, source)


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The settings of every Promptly application in a Serve config file, and a warning for each setting in
    it that has another name now."""

    applications: tuple[Settings, ...]
    old_names: tuple[str, ...]


def load_file(path: Path) -> tuple[Settings, ...]:
    """The settings that :func:`read_config` gives, which tells what is refused."""
    return read_config(path).applications


def read_config(path: Path, renamed: Mapping[str, Renamed] = RENAMED) -> ConfigFile:
    """Reads the file once, so that it may be a pipe; :func:`check_exposure` is included.

    Raises:
        SettingsError: the file cannot be read, is not YAML, or holds wrong settings.
    """
    document = _read_yaml(path)
    _refuse_misplaced(document, SERVE_KEYS, path, "")
    applications = document.get("applications")
    if not isinstance(applications, list) or not applications:
        raise SettingsError(f"{path}: applications = {applications!r}: expected a list of applications")
    host = _http_host(document.get("http_options"), path)
    found = [_application(entry, path, host, renamed) for entry in applications]
    names = [line for _, lines in found for line in lines]
    return ConfigFile(tuple(settings for settings, _ in found), tuple(names))


def proxy_settings(file: str | None) -> ProxySettings:
    """The `proxy` section of a Serve config file; the defaults if there is no file or no such section.

    Raises:
        SettingsError: the file cannot be read, or its `proxy` section is wrong.
    """
    if file is None:
        return ProxySettings()
    entries = _read_yaml(Path(file)).get("applications") or []
    args = [modern(entry.get("args") or {}, source=file)[0] for entry in entries]
    sections = [each["proxy"] for each in args if each.get("proxy") is not None]
    try:
        return ProxySettings.model_validate(sections[0] if sections else {})
    except ValidationError as error:
        problems = "; ".join(f"proxy.{_key(item['loc'])}: {item['msg']}" for item in error.errors())
        raise SettingsError(f"{file}: {problems}") from None


def check_exposure(settings: Settings, host: str | None, *, source: str) -> None:
    """Refuse to listen beyond this machine without keys, unless the settings allow it.

    ``host`` is the address that Serve's proxy listens on; ``None``: Serve is not running.

    Raises:
        SettingsError: ``auth`` is ``loopback`` (or unset) and ``host`` is not a loopback address.
    """
    if settings.auth == "loopback" and host is not None and host not in LOOPBACK_HOSTS:
        raise SettingsError(
            f"{source}: auth = 'loopback': http_options.host is {host!r}, which other machines can reach; "
            "expected `auth: {keys_file: ...}` or `auth: {keys_env: ...}`, "
            "or `auth: none` to serve anyone without a key"
        )


def _refuse_misplaced(section: Mapping[Any, Any], known: frozenset[str], path: Path, where: str) -> None:
    """Serve ignores unknown keys: a Promptly section at the wrong level would have no effect, and a start
    without keys or TLS would look like one with them.

    Raises:
        SettingsError: a key that Serve does not know.
    """
    for key in section:
        if key not in known:
            hint = f"expected one of: {', '.join(sorted(known))}"
            if key in Settings.model_fields:
                hint = f"expected it under `applications[].args`: {where or 'the top level'} is Serve's"
            raise SettingsError(f"{path}: {where + '.' if where else ''}{key}: unknown key; {hint}")


def _http_host(given: Any, path: Path) -> str:
    """Where Serve listens. Raises: SettingsError: it would fail when everything else has started."""
    http = {} if given is None else given
    if not isinstance(http, Mapping):
        raise SettingsError(f"{path}: http_options = {http!r}: expected a mapping")
    host, port = http.get("host"), http.get("port")
    if host is not None and not isinstance(host, str):
        raise SettingsError(f"{path}: http_options.host = {host!r}: expected an address")
    if port is not None and (type(port) is not int or port not in PORTS):
        raise SettingsError(f"{path}: http_options.port = {port!r}: expected {PORTS[0]} to {PORTS[-1]}")
    return host or DEFAULT_HTTP_HOST


def _application(
    entry: Any, path: Path, host: str, renamed: Mapping[str, Renamed]
) -> tuple[Settings, list[str]]:
    """Its settings, and the warnings of old names."""
    args = entry.get("args") if isinstance(entry, dict) else None
    if isinstance(entry, dict):
        _refuse_misplaced(entry, APPLICATION_KEYS, path, "applications[]")
    if not isinstance(args, dict):
        raise SettingsError(f"{path}: applications[].args = {args!r}: expected Promptly's settings")
    current, old_names = modern(args, source=str(path), table=renamed)
    settings = _validated(current, str(path))
    check_exposure(settings, host, source=str(path))
    return settings, old_names


def _validated(args: Mapping[str, Any], source: str) -> Settings:
    try:
        return Settings.model_validate(args)
    except ValidationError as error:
        raise SettingsError("\n".join(_describe(error, source))) from None


class _EachKeyOnce(yaml.SafeLoader):
    """Refuses a key that is there twice. YAML's own reader takes the last one: a whole section, such as
    `auth`, would be lost in silence."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"{key.value!r} stands twice", problem_mark=key.start_mark
                    )
                seen.add(key.value)
        return node


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), _EachKeyOnce)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsError(f"{path}: {said_of(error)}") from error
    if not isinstance(document, dict):
        raise SettingsError(f"{path}: expected a Serve config (a mapping), got {type(document).__name__}")
    return document


def _describe(error: ValidationError, source: str) -> Iterator[str]:
    """One line for each wrong key."""
    seen: set[str] = set()
    for item in error.errors(include_url=False):
        if _is_other_branch(item):
            continue
        key = _key(item["loc"])
        expectation = _expectation(item)
        line = f"{source}: {key} = {_shown(key, item['input'])}: {expectation}"
        if item["type"] == "missing":
            line = f"{source}: {key} is missing: expected a value"
        if line not in seen:
            seen.add(line)
            yield line


def _is_other_branch(item: Any) -> bool:
    """A union (``replicas``, ``auth``) reports an error for every branch. Only those of the branch that fits
    the given value are shown."""
    is_mapping = isinstance(item["input"], Mapping)
    if item["type"] in {"literal_error", "int_type"}:
        return is_mapping
    return item["type"] == "model_type" and not is_mapping and _is_branch(str(item["loc"][-1]))


def _expectation(item: Any) -> str:
    if item["type"] == "extra_forbidden":
        return _known_keys(item["loc"])
    if item["type"] == "value_error":
        return str(item["ctx"]["error"])
    message: str = item["msg"]
    return "expected: " + message.removeprefix("Input should be ").removeprefix("Value should have ")


def _key(loc: tuple[int | str, ...]) -> str:
    """``("models", 0, "engine")`` as ``models[0].engine``; union branches (class names) are left out."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        elif not _is_branch(part):
            text += f".{part}"
    return text.lstrip(".") or "args"


def _is_branch(part: str) -> bool:
    return "[" in part or part.endswith("Settings") or part in {"int", "str"}


def _shown(key: str, value: Any) -> str:
    """The value for the message: shortened, and without secrets."""
    masked = _masked(key.rsplit(".", 1)[-1], value)
    text = HIDDEN if masked == HIDDEN else repr(masked)
    return text if len(text) <= SHOWN_VALUE_CHARS else text[:SHOWN_VALUE_CHARS] + "…"


def _masked(name: str, value: Any) -> Any:
    """The value with possible secrets hidden: values of fields with secret names, and users and queries in
    URLs."""
    if isinstance(value, str):
        is_secret = any(word in name.lower() for word in SECRET_WORDS)
        return HIDDEN if is_secret else URL_QUERY.sub(f"?{HIDDEN}", USER_IN_URL.sub(f"//{HIDDEN}@", value))
    if isinstance(value, Mapping):
        return {key: _masked(str(key), inner) for key, inner in value.items()}
    return [_masked(name, inner) for inner in value] if isinstance(value, list) else value


def _known_keys(loc: tuple[int | str, ...]) -> str:
    model = _model_at(Settings, loc[:-1])
    known = sorted(model.model_fields) if model else []
    close = difflib.get_close_matches(str(loc[-1]), known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"unknown key; {hint}expected one of: {', '.join(known)}"


def _model_at(model: type[BaseModel] | None, loc: tuple[int | str, ...]) -> type[BaseModel] | None:
    """The settings class that a path leads to."""
    for part in loc:
        if model is None:
            return None
        if isinstance(part, str) and part in model.model_fields:
            model = _model_in(model.model_fields[part].annotation)
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_model_in(argument) for argument in typing.get_args(annotation))
    return next((model for model in found if model is not None), None)
