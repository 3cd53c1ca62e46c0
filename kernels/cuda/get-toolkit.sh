#!/usr/bin/env bash
# Puts the compiler and headers of toolkit.txt into the folder $1: by pip, no root,
# 119 MB to download. A second run with the same list does nothing.
set -euo pipefail
list=$(cd "$(dirname "$0")" && pwd)/toolkit.txt
dir=$1
if cmp -s "$list" "$dir/.installed"; then exit 0; fi

rm -rf "$dir"
mkdir -p "$dir"
echo "fetching the CUDA compiler and headers (119 MB)"
python3 -m pip install --quiet --require-hashes --only-binary=:all: --no-deps --no-compile \
	--disable-pip-version-check --root-user-action=ignore --target "$dir" -r "$list"

# Keep the headers of the attention package, drop its Python code and tests.
data=$dir/flashinfer/data
mkdir "$dir/attn"
mv "$data/include/flashinfer" "$dir/attn/flashinfer"
mv "$data/cutlass/include/cutlass" "$data/cutlass/include/cute" "$dir/attn/"
mv "$data/cutlass/tools/util/include/cutlass/util" "$dir/attn/cutlass/util"
rm -rf "$dir/flashinfer" "$dir"/flashinfer_python*.libs
cp "$list" "$dir/.installed"
