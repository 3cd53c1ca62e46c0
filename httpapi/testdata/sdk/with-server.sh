#!/usr/bin/env bash
# Starts a server of its own and runs run.sh against it.
#
#   with-server.sh WAYBILL MODEL     program and model file
set -euo pipefail

waybill=${1:?usage: with-server.sh WAYBILL MODEL}
model=${2:?usage: with-server.sh WAYBILL MODEL}
here=$(cd "$(dirname "$0")" && pwd)
log=$(mktemp)

"$waybill" serve "$model" --port 0 --log-format none 2>"$log" &
server=$!
trap 'kill $server 2>/dev/null; wait $server 2>/dev/null; rm -f "$log"' EXIT

for _ in $(seq 600); do
	base=$(sed -n 's/^ready: .*\(http:.*\)$/\1/p' "$log")
	[ -n "$base" ] && break
	kill -0 $server 2>/dev/null || break
	sleep 0.1
done
if [ -z "${base:-}" ]; then
	echo "with-server.sh: the server did not become ready:" >&2
	cat "$log" >&2
	exit 1
fi
"$here/run.sh" "$base"
