"""Forks vLLM's core from a process that has imported vLLM, beside the replica's own imports.

``ray.serve.llm`` starts the core by *spawn*: a new Python imports vLLM once more, after the replica has. A
fork server imports it while the replica does (figures: docs/benchmarks.md). vLLM's own HTTP server knows the
same (``VLLM_WORKER_MULTIPROC_METHOD=forkserver``), but in a Ray actor vLLM insists on *spawn*, because a
child of the actor's process would inherit Ray's threads. A child of the fork server does not.

Some variables are read when torch is imported (``READ_AT_IMPORT``): where the core needs others than those
that the server imported with, it is spawned. All other variables reach the core when it is forked, before its
first own line; only what pickle imports for its arguments sees the server's.

Checked against vLLM 0.29. When it moves, look at ``vllm.v1.engine.utils.get_mp_context``, which
``CoreEngineProcManager`` asks for the process of each core, and at ``vllm.logger``, which reads its
configuration when it is imported. Against Python 3.11; when it moves, look at ``multiprocessing.forkserver``
(that of 3.14 waits for the server as it connects) and at ``multiprocessing.spawn._main``.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing import connection, forkserver, reduction
from multiprocessing.context import ForkServerContext
from typing import Any

from deployments.engine.cpu.openmp import READ_AT_IMPORT

IMPORTED = "deployments.engine.vllm.core_imports"

LOGGING = ("VLLM_CONFIGURE_LOGGING", "VLLM_LOGGING_CONFIG_PATH", "VLLM_LOGGING_LEVEL")
"""What vLLM's log is configured by. To configure it again may silence the loggers that are there by then."""

IMPORT_LIMIT_S = 300.0
"""vLLM's imports take 15 to 60 s on slow machines: one that takes five times as long hangs."""

logger = logging.getLogger("ray.serve")


class ForkServer:
    """The fork server of this process (Python has one), which imports the module ``imported`` from now on,
    with ``variables`` beside this process's. The constructor returns at once. Where the server cannot start,
    or has not imported the module after ``limit_s``, cores are spawned."""

    def __init__(
        self, variables: Mapping[str, str], imported: str = IMPORTED, limit_s: float = IMPORT_LIMIT_S
    ) -> None:
        self._imports_with = {**os.environ, **variables}
        self._limit_s, self._began = limit_s, time.monotonic()
        self._first: int | None = None  # readable once the server forks, or has died
        self._is_usable, self._has_forked = True, False
        multiprocessing.get_context("forkserver").set_forkserver_preload([imported])
        try:
            self._start()
            self._first = _fork_one()
        except OSError as error:
            self.give_up(f"no fork server: {error}")

    def _start(self) -> None:
        own = dict(os.environ)
        _become(self._imports_with)
        try:
            forkserver.ensure_running()
        finally:
            _become(own)

    @contextmanager
    def forking_cores(self) -> Iterator[None]:
        """vLLM's cores that start in this context are forked, where this process's environment allows it."""
        from vllm.v1.engine import utils

        other = [name for name in READ_AT_IMPORT if os.environ.get(name) != self._imports_with.get(name)]
        if other and self._is_usable:
            self.give_up(f"other values of {', '.join(other)}")
        if not self._is_usable:
            yield
            return
        asked: Any = utils
        before = asked.get_mp_context
        asked.get_mp_context = lambda: _ForkingContext() if self._has_imported() else before()
        try:
            yield
        finally:
            asked.get_mp_context = before

    def _has_imported(self) -> bool:
        """Waits for it: to start a process would wait for ever."""
        if self._first is None or self._has_forked:
            return self._has_forked
        left = max(self._began + self._limit_s - time.monotonic(), 0.0)
        if not connection.wait([self._first], left):
            self.give_up(f"the fork server has not imported vLLM after {self._limit_s:.0f} s")
        elif not os.read(self._first, 1):
            self.give_up("the fork server has ended")
        else:
            self._has_forked = True
        return self._has_forked

    def give_up(self, why: str) -> None:
        """End the server as well: it keeps vLLM in memory, and while it imports, it would not see that this
        process has ended."""
        logger.info("vLLM's core is spawned, not forked: %s", why)
        self._is_usable = False
        if self._first is not None:
            os.close(self._first)
            self._first = None
        server: Any = forkserver._forkserver
        if server._forkserver_pid is not None:
            with suppress(OSError):  # it has ended
                os.kill(server._forkserver_pid, signal.SIGKILL)
                server._stop()


def _fork_one() -> int:
    """Let the server fork a process that does nothing as soon as it can: the file descriptor has data then,
    or ends with the server. A whole ``Process`` would import this process's main module, which is Ray's."""
    first, tell = forkserver.connect_to_new_process([])
    with os.fdopen(tell, "wb") as file:
        reduction.dump({"sys_path": sys.path}, file)
        reduction.dump(_Nothing(), file)
    return first


class _Nothing:
    """In the place of a process's object."""

    def _bootstrap(self, parent_sentinel: int) -> int:
        return 0


class _ForkingContext(ForkServerContext):
    """A context whose processes begin with the environment that this process has when it starts them."""

    def Process(  # type: ignore[override]  # it takes what vLLM gives
        self, *, target: Callable[..., Any], name: str, kwargs: Mapping[str, Any]
    ) -> Any:
        return super().Process(target=_begin, name=name, args=(target, _Environment()), kwargs=dict(kwargs))


class _Environment:
    """This process's environment when it is sent, which is when a process starts."""

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(os.environ),)


def _begin(target: Callable[..., Any], environment: Mapping[str, str], **kwargs: Any) -> None:
    from vllm.logger import _configure_vllm_root_logger

    logs_elsewhere = any(os.environ.get(name) != environment.get(name) for name in LOGGING)
    _become(environment)
    if logs_elsewhere:
        _configure_vllm_root_logger()
    threading.Thread(target=_end_with_replica, daemon=True).start()
    target(**kwargs)


def _end_with_replica() -> None:
    """Ray ends the children of a replica that is killed, and the core is the child of one of them."""
    replica = multiprocessing.parent_process()
    assert replica is not None, "this process was forked for one"
    connection.wait([replica.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)


def _become(environment: Mapping[str, str]) -> None:
    """Change what differs. The rest stays where it is in memory: there a process's title is written."""
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in environment.items() if os.environ.get(name) != value})
