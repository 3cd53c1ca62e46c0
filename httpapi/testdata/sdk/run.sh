#!/usr/bin/env bash
# Talks to a running server through the unmodified OpenAI clients for Python and
# JavaScript.
#
#   run.sh BASE_URL        for example http://127.0.0.1:8000
#
# The packages are installed once into $SDK_CACHE (default: .cache/sdk of the
# repository). Exit status: 0 all is well, 1 a check failed, 3 a client could not
# be installed.
set -euo pipefail

base=${1:?usage: run.sh BASE_URL}
here=$(cd "$(dirname "$0")" && pwd)
cache=${SDK_CACHE:-$here/../../../.cache/sdk}
python_package='openai==3.57.0'
node_package='openai@7.59.0'

mkdir -p "$cache"
cache=$(cd "$cache" && pwd)

fail_install() {
	echo "run.sh: cannot install $1 into $cache: $2" >&2
	exit 3
}

venv=$cache/python
if [ "$(cat "$venv/installed" 2>/dev/null)" != "$python_package" ]; then
	rm -rf "$venv"
	python3 -m venv "$venv" || fail_install "$python_package" 'python3 -m venv failed'
	"$venv/bin/pip" install --quiet --disable-pip-version-check "$python_package" || fail_install "$python_package" 'pip failed'
	echo "$python_package" >"$venv/installed"
fi

node=$cache/node
if [ "$(cat "$node/installed" 2>/dev/null)" != "$node_package" ]; then
	rm -rf "$node"
	mkdir -p "$node"
	command -v npm >/dev/null || fail_install "$node_package" 'npm is missing'
	npm install --silent --no-audit --no-fund --prefix "$node" "$node_package" || fail_install "$node_package" 'npm failed'
	echo "$node_package" >"$node/installed"
fi

status=0
"$venv/bin/python" "$here/check.py" "$base" || status=1
# An ES module finds its packages from its own folder upwards.
cp "$here/check.mjs" "$node/check.mjs"
node "$node/check.mjs" "$base" || status=1
exit $status
