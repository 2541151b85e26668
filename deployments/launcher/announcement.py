"""The messages of the supervisor when the application is ready: on the terminal, and in the ready file."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from pathlib import Path

from deployments.launcher import plan, status
from deployments.launcher.config import ServeConfig
from deployments.launcher.folder import StartFolder
from deployments.launcher.ports import LOOPBACK
from deployments.launcher.run import Run
from deployments.launcher.terminal import say


def announce(run: Run) -> None:
    if run.options.ready_file is not None:
        write_atomically(run.options.ready_file, json.dumps(description(run), indent=2))
    say(f"\nReady after {time.monotonic() - run.began:.1f} s: {run.config.url}")
    if status.cache_fails(f"{run.config.url}/health"):
        say("The cache fails, and requests are answered without it: /admin/cache and the logs say why.")
    if run.config.has_console:
        say(f"Console: {run.config.url} in a browser")
    say(f"Dashboard: {plan.dashboard_url(run.ports)} (asks for the token in {run.folder.token})")
    ours, proxys = plan.metrics_url(run.ports), plan.proxy_metrics_url(run.ports)
    say(f"Metrics for Prometheus: {ours}, HAProxy's: {proxys}")
    if run.config.needs_admin_token:
        say(f"Admin token for /admin: {token_line(run.folder.admin_token, shown=sys.stdout.isatty())}")
    say(f"For the commands `ray` and `serve`: source {run.folder.settings}")
    if run.config.needs_key:
        say("The commands below need a key of yours: KEY=pk-...")
    for explanation, command in demo_commands(run.config):
        say(f"\n  # {explanation}\n  {command}")
    if run.config.needs_admin_token:
        say(f"\n  # the state of the engines:\n  {admin_command(run.config, run.folder)}")
    say("\nCtrl-C stops it.")


def token_line(token: Path, *, shown: bool) -> str:
    """Not ``shown``: what is printed goes to a file or a journal, which others may read."""
    return f"{token.read_text(encoding='utf-8')} (in {token})" if shown else f"in {token}"


def description(run: Run) -> dict[str, object]:
    return {
        "url": run.config.url,
        "dashboard_url": plan.dashboard_url(run.ports),
        "ray_address": f"{LOOPBACK}:{run.ports.gcs}",
        "env": plan.client_settings(run.ports, run.folder),
        "folder": str(run.folder.root),
        "admin_token_file": str(run.folder.admin_token),
        "metrics_url": plan.metrics_url(run.ports),
        "haproxy_metrics_url": plan.proxy_metrics_url(run.ports),
        "pids": {"supervisor": os.getpid()} | {child.name: child.process.pid for child in run.children},
    }


def write_atomically(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def admin_command(config: ServeConfig, folder: StartFolder) -> str:
    """The command reads the token from its file, so that no shell history holds it."""
    return f'curl {config.url}/admin/fleet -H "Authorization: Bearer $(cat {folder.admin_token})"'


def demo_commands(config: ServeConfig) -> list[tuple[str, str]]:
    """Commands to paste once the application is ready, each with an explanation."""
    question, rephrased = "What is the capital of France?", "Can you tell me the capital of France?"
    streamed = ("a streamed answer:", chat_command(config, question, "-N"))
    if not config.has_cache:
        return [streamed]
    return [
        streamed,
        ("the same again comes from the cache (x-cache: exact):", chat_command(config, question, "-N -i")),
        ("so does the same in other words (x-cache: semantic):", chat_command(config, rephrased, "-N -i")),
    ]


def chat_command(config: ServeConfig, question: str, flags: str) -> str:
    body = (
        f'{{"model": "{config.model_id}", "temperature": 0, "stream": true, '
        f'"messages": [{{"role": "user", "content": "{question}"}}]}}'
    )
    trusting = " -k" if config.tls else ""  # the certificate may name another host than this one
    key = ' -H "Authorization: Bearer $KEY"' if config.needs_key else ""
    return (
        f"curl {flags}{trusting} {config.url}/v1/chat/completions{key} -H 'Content-Type: application/json' "
        f"-d {shlex.quote(body)}"
    )
