"""``promptly check FILE``: finds the errors that can be found before anything starts.

It checks the settings and what they name on this machine: the keys file, the variables that hold keys, the
proxy's certificate, and that what it would open are databases that no newer version has written. It prints
which parsers the engines get for tool calls and reasoning. Where a file has raw `engine.options` and vLLM is
installed, it imports vLLM (15 s) and asks it for their names. ``make serve`` runs it before it starts Ray,
without that: the application's builder or the engine asks there.
"""

from __future__ import annotations

import argparse
import os
import ssl
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from deployments.cli.kept import unusable_files
from deployments.cli.raw_options import raw_option_notes
from deployments.engine.parsers import model_parsers
from deployments.gateway.guardrails.judges import guard_headers
from deployments.gateway.placement.external import external_upstreams
from deployments.gateway.sign_in.sign_in import client_secret
from deployments.platform.prompt_folder import PromptFolder
from deployments.platform.secret_environment import with_secrets
from serve_app.errors import SettingsError
from serve_app.file_errors import said_of
from serve_app.model_store import ModelStore, default_cache_dir
from serve_app.prompts.library import library_of
from serve_app.request.auth import load_keys
from serve_app.settings import KeySettings, Settings
from serve_app.settings.doubts import doubts
from serve_app.settings.load import ConfigFile, read_config
from serve_app.settings.prompts import PromptSettings
from serve_app.settings.proxy import ProxySettings

FOLDER_STARTS = ("/", "./", "../", "~")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``promptly check``."""
    parser.add_argument("config", type=Path, help="Serve config file")
    parser.add_argument(
        "--without-vllm", action="store_true", help="do not import vLLM to check raw `engine.options`"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    try:
        file = read_config(options.config)
        warnings = check(options.config, file, os.environ)
        if not options.without_vllm:
            warnings += _raw_option_notes(options.config, file)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 1
    for warning in warnings:
        print(f"{options.config}: warning: {warning}", file=sys.stderr)
    for line in chosen_parsers(file, ModelStore(default_cache_dir())):
        print(line)
    return 0


def _raw_option_notes(config: Path, file: ConfigFile) -> list[str]:
    """Raises: SettingsError: vLLM does not know an option."""
    try:
        return [note for settings in file.applications for note in raw_option_notes(settings.models)]
    except SettingsError as error:
        raise SettingsError("\n".join(f"{config}: {line}" for line in str(error).splitlines())) from None


def chosen_parsers(file: ConfigFile, store: ModelStore) -> Iterator[str]:
    """Which parsers each engine would get for tool calls and reasoning, by what is on this machine, and
    why."""
    for settings in file.applications:
        for number, model in enumerate(settings.models):
            if model.engine is not None:
                where = f"models[{number}] {model.id}"
                yield from (f"{where}: {line}" for line in model_parsers(model, store).lines())


def check(config: Path, file: ConfigFile, environment: Mapping[str, str]) -> list[str]:
    """The warnings, one line each: an old name of a setting, an unknown path in `paths`, or a model's folder
    that does not exist. ``file``: what was read from ``config``.

    Raises: SettingsError: one message that names the file, the setting and what was expected.
    """
    for settings in file.applications:
        try:
            _check_named(settings, with_secrets(environment))
        except SettingsError as error:
            raise SettingsError(f"{config}: {error}") from None
    lines = [
        line for settings in file.applications for line in (*doubts(settings), *_missing_folders(settings))
    ]
    return [*file.old_names, *lines]


def _missing_folders(settings: Settings) -> Iterator[str]:
    """Sources that are paths of missing folders. A name such as `org/model` is a prepared model or on the
    hub."""
    sources = [(f"models[{number}].source", model.source) for number, model in enumerate(settings.models)]
    if settings.embedder is not None:
        sources.append(("embedder.source", settings.embedder.source))
    for where, source in sources:
        if source is not None and source.startswith(FOLDER_STARTS) and not Path(source).expanduser().is_dir():
            yield f"{where} = {source!r}: no such folder on this machine"


def _check_named(settings: Settings, environment: Mapping[str, str]) -> None:
    if isinstance(settings.auth, KeySettings):
        load_keys(settings.auth, environment)
    client_secret(settings, environment)
    external_upstreams(settings, environment)
    guard_headers(settings.guardrails, environment)
    _check_certificate(settings.proxy)
    _check_prompts(settings.prompts)
    unusable = "\n".join(unusable_files(settings))
    if unusable:
        raise SettingsError(unusable)


def _check_prompts(settings: PromptSettings | None) -> None:
    """Raises: SettingsError: the folder cannot be read, or a file in it cannot be used."""
    if settings is None:
        return
    try:
        problems = library_of(PromptFolder(settings).read()).problems
    except OSError as error:
        raise SettingsError(f"prompts.folder = {settings.folder!r}: {said_of(error)}") from None
    if problems:
        raise SettingsError("\n".join(f"{settings.folder}/{problem}" for problem in problems))


def _check_certificate(proxy: ProxySettings) -> None:
    """Check that the files exist, are PEM, and belong together. Raises: SettingsError."""
    if proxy.tls_certificate is None:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    key = "" if proxy.tls_key is None else f" with proxy.tls_key = {proxy.tls_key!r}"
    try:
        context.load_cert_chain(proxy.tls_certificate, proxy.tls_key)
    except OSError as error:  # ssl.SSLError is one
        raise SettingsError(
            f"proxy.tls_certificate = {proxy.tls_certificate!r}{key}: {said_of(error)}"
        ) from None
    if proxy.tls_client_ca is None:
        return
    try:
        context.load_verify_locations(proxy.tls_client_ca)
    except OSError as error:
        raise SettingsError(f"proxy.tls_client_ca = {proxy.tls_client_ca!r}: {said_of(error)}") from None
