#!/bin/sh
# install.sh FOLDER VENV: the wheel in FOLDER into a new environment, with the versions of the lists beside it,
# and without what only engines need. PyTorch's CPU build comes from its own index where that can be reached.
set -eu
folder=$1 venv=$2
python3 -m venv "$venv"
sed 's/ *\\$//; /--hash/d; /^ *#/d; /^$/d' "$folder/cpu.txt" "$folder/cpu-unhashed.txt" > "$folder/constraints.txt"
"$venv/bin/pip" install --no-cache-dir --constraint "$folder/constraints.txt" \
    --extra-index-url "${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}" "$folder"/promptly_serve-*.whl
# pip itself, tests and headers of packages: nothing here compiles.
find "$venv" -depth -type d \( -name tests -o -name __pycache__ \) -exec rm -rf {} +
rm -rf "$venv"/lib/python3*/site-packages/torch/include "$venv"/lib/python3*/site-packages/pyarrow/include
"$venv/bin/promptly" --version
