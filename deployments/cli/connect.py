"""Point a client at a running endpoint: print its environment variables and configuration, and ask the
endpoint one question in the client's own API.

    promptly connect claude
    promptly connect codex --url https://llm.example.com --model qwen3-8b --run
    eval "$(promptly connect openai --exports)"

The key is read from PROMPTLY_API_KEY, or from the file that --key-file names; never from the command line,
which other users of the machine can see. Exit status 1: the endpoint did not answer as the client needs it;
the message says why.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence

from deployments.cli.endpoint import DEFAULT_URL, CannotConnect, asked, base_url, key_in, no_secret
from serve_app.clients import (
    CLIENTS,
    KEY_VARIABLE,
    NO_KEY,
    Api,
    Client,
    Setup,
    Target,
    probe,
    probe_headers,
    said,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``promptly connect``."""
    parser.add_argument("client", choices=CLIENTS, metavar="CLIENT", help=", ".join(CLIENTS))
    parser.add_argument("--url", default=DEFAULT_URL, help=f"of the endpoint; default: {DEFAULT_URL}")
    parser.add_argument("--model", help="default: the first that the endpoint lists")
    parser.add_argument("--key-file", metavar="FILE", help=f"holds the key; default: ${KEY_VARIABLE}")
    parser.add_argument("--key", type=no_secret(KEY_VARIABLE), help=argparse.SUPPRESS)
    parser.add_argument("--exports", action="store_true", help="print only the variables, for a shell")
    parser.add_argument("--no-check", action="store_true", help="do not ask the endpoint anything")
    parser.add_argument(
        "--run",
        nargs=argparse.REMAINDER,
        dest="starts",
        metavar="ARGUMENT",
        help="start the client with these settings; what follows is for the client",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    client = CLIENTS[options.client]
    url = base_url(options.url)
    try:
        key = known_key(options.key_file)
        model = options.model or first_model(url, key)
        target = Target(url, model, key)
        setup = client.setup(target)
        answer = None if options.no_check else check(client.api, target)
    except CannotConnect as error:
        print(error, file=sys.stderr)
        return 1
    if options.starts is not None:
        return start(client, setup, options.starts)
    lines = exports(setup) if options.exports else described(client, setup, target, answer)
    print("\n".join(lines))
    return 0


def known_key(file: str | None) -> str:
    """Raises: CannotConnect: the file holds no key that can be read."""
    if file is None:
        return os.environ.get(KEY_VARIABLE) or NO_KEY
    found = key_in(file)
    if found is None:
        raise CannotConnect(f"There is no key in {file!r}.")
    return found


def exports(setup: Setup) -> Iterator[str]:
    """Lines for a shell."""
    return (f"export {name}={shlex.quote(value)}" for name, value in setup.environment.items())


def described(client: Client, setup: Setup, target: Target, answer: str | None) -> Iterator[str]:
    if answer is not None:
        yield f"# {client.api.value} of {target.url} answers as {client.about} asks: {answer!r}"
    yield from exports(setup)
    for place, text in setup.files.items():
        yield f"\n# {place}"
        yield text.rstrip("\n")
    if setup.command:
        yield f"\n# then\n{shlex.join(setup.command)}"


def first_model(url: str, key: str) -> str:
    """Raises: CannotConnect: the endpoint lists none."""
    cards = asked(f"{url}/v1/models", None, {"authorization": f"Bearer {key}"}).get("data") or []
    if not cards:
        raise CannotConnect(f"{url} lists no model: name one with --model.")
    return str(cards[0]["id"])


def check(api: Api, target: Target) -> str:
    """What the model says to a small request. Raises: CannotConnect."""
    answer = asked(f"{target.url}{api.value}", probe(api, target.model), probe_headers(api, target.key))
    try:
        return said(api, answer)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise CannotConnect(
            f"{target.url}{api.value} answers in another form: {str(answer)[:200]}"
        ) from error


def start(client: Client, setup: Setup, arguments: Sequence[str]) -> int:
    """Replace this process by the client; returns only if that fails."""
    if not setup.command:
        print(f"{client.about} is no program to start: use what is printed without --run.", file=sys.stderr)
        return 1
    program = shutil.which(setup.command[0])
    if program is None:
        print(f"{setup.command[0]!r} is not installed: {client.install}", file=sys.stderr)
    else:
        os.execve(program, [*setup.command, *arguments], {**os.environ, **setup.environment})
    return 1
