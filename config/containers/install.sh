#!/bin/sh
# install.sh FOLDER VENV: the wheel in FOLDER into a new environment, with the versions of the lists beside it,
# and without what only engines need. PyTorch's CPU build comes from its own index where that can be reached.
set -eu
folder=$1 venv=$2
python3 -m venv "$venv"
sed 's/ *\\$//; /--hash/d; /^ *#/d; /^$/d' "$folder/cpu.txt" "$folder/cpu-unhashed.txt" > "$folder/constraints.txt"
"$venv/bin/pip" install --no-cache-dir --constraint "$folder/constraints.txt" \
    --extra-index-url "${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}" "$folder"/promptly_serve-*.whl
# Tests and headers of packages, PyTorch's C++ tests and tools, Ray's Java, pip: nothing here compiles or installs.
packages=$(echo "$venv"/lib/python3*/site-packages)
find "$venv" -depth -type d \( -name tests -o -name __pycache__ \) -exec rm -rf {} +
rm -rf "$packages/torch/include" "$packages/torch/test" "$packages/pyarrow/include" "$packages/ray/jars"
rm -rf "$packages/pip" "$packages"/pip-*.dist-info "$venv"/bin/pip*
find "$packages/torch/bin" -type f ! -name torch_shm_manager -delete
# Names that only a debugger reads, a tenth of a gigabyte.
strip --strip-unneeded "$packages/torch/lib/libtorch_cpu.so" "$packages/ray/_raylet.so" \
    "$packages"/pyarrow/libarrow.so.* "$packages"/uvloop/loop.*.so
"$venv/bin/promptly" --version
