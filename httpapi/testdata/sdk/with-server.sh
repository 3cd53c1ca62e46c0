#!/usr/bin/env bash
# Starts a server on a free port, runs run.sh against it, and ends it.
#
#   with-server.sh BINARY MODEL
#
# Exit status: that of run.sh, or 2 if the server does not start.
set -euo pipefail

binary=${1:?usage: with-server.sh BINARY MODEL}
model=${2:?usage: with-server.sh BINARY MODEL}
here=$(cd "$(dirname "$0")" && pwd)
log=$(mktemp)

"$binary" serve "$model" --port 0 --max-model-len 4096 --drain-grace 0s >"$log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -f "$log"' EXIT

base=
for _ in $(seq 600); do
	base=$(sed -n 's|^ready: .*\(http://[^ ]*\)$|\1|p' "$log")
	[ -n "$base" ] && break
	kill -0 "$server" 2>/dev/null || break
	sleep 0.1
done
if [ -z "$base" ]; then
	echo 'with-server.sh: the server did not start:' >&2
	cat "$log" >&2
	exit 2
fi
"$here/run.sh" "$base"
