#!/usr/bin/env bash
# Runs two well-known load generators, unmodified, against a server and compares
# what they measure with the server's own ledger. Each also measures a yardstick, a
# server that computes nothing: what it measures there beyond the yardstick's own
# figures is the client's.
#
#   run.sh BINARY MODEL.gguf
#
# CLIENTS_CACHE (default .cache/clients) keeps their virtual environments, some
# 7 GB: guidellm brings PyTorch. CLIENTS="guidellm aiperf" chooses, REQUESTS=100
# and STREAMS="1 4" size the load. Needs python3 with venv.
set -euo pipefail

guidellm=guidellm==0.8.1
aiperf=aiperf==0.13.0

binary=${1:?usage: run.sh BINARY MODEL}
model=${2:?usage: run.sh BINARY MODEL}
here=$(cd "$(dirname "$0")" && pwd)
cache=${CLIENTS_CACHE:-.cache/clients}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
out=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$out"' EXIT

# venv NAME REQUIREMENT: makes a virtual environment once.
venv() {
	[ -e "$cache/$1/done" ] && [ "$(cat "$cache/$1/done")" = "$2" ] && return
	python3 -m venv "$cache/$1"
	"$cache/$1/bin/pip" install --quiet "$2"
	echo "$2" >"$cache/$1/done"
}

python3 "$here/tokenizer.py" "$model" "$cache/tokenizer"
# One core is left to the client: a Python client that waits for a core between
# its clock's start and its write measures its own machine.
threads=$(($(nproc) > 1 ? $(nproc) - 1 : 1))
yardstick=$out/yardstick
go build -o "$yardstick" "$here/yardstick/main.go"

# start NAME COMMAND...: starts a server and sets base to its address.
start() {
	local log=$out/$1.log
	shift
	"$@" >"$log" 2>&1 &
	server=$!
	base=
	for _ in $(seq 600); do
		base=$(sed -n 's|^ready: .*\(http://[^ ]*\)$|\1|p' "$log")
		[ -n "$base" ] && return
		kill -0 "$server" 2>/dev/null || break
		sleep 0.1
	done
	echo 'run.sh: the server did not start:' >&2
	cat "$log" >&2
	exit 2
}

# load NAME CLIENT STREAMS: runs a client and compares.
load() {
	local dir=$out/$1-$2-$3
	mkdir "$dir"
	case $2 in
	guidellm)
		"$cache/guidellm/bin/guidellm" run --disable-progress \
			--backend "kind=openai_http,target=$base,model=smollm2" \
			--profile "kind=concurrent,streams=$3" --constraint "kind=max_requests,count=${REQUESTS:-100}" \
			--tokenizer "kind=huggingface_auto,model=$cache/tokenizer" \
			--data 'kind=synthetic_text,prompt_tokens=40,output_tokens=16' \
			--output "kind=json,path=$dir/result.json" >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
		;;
	aiperf)
		"$cache/aiperf/bin/aiperf" profile -m smollm2 --url "$base" --endpoint-type chat --streaming \
			--tokenizer "$cache/tokenizer" --concurrency "$3" --request-count "${REQUESTS:-100}" \
			--prompt-input-tokens-mean 40 --prompt-output-tokens-mean 16 \
			--extra-inputs ignore_eos:true --extra-inputs temperature:0 --use-server-token-count \
			--output-artifact-dir "$dir" --ui none --no-gpu-telemetry --workers-max 1 >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
		mv "$dir/profile_export.jsonl" "$dir/result.json"
		;;
	esac
	sleep 0.3 # a waybill is booked a moment after the last byte
	echo "$1, $3 at once, load average $(cut -d' ' -f1 /proc/loadavg)"
	python3 "$here/compare.py" "$2" "$dir/result.json" "$out/$1.log"
}

status=0
for client in ${CLIENTS:-guidellm aiperf}; do venv "$client" "${!client}"; done
VT_TTFT_DUMP=1 start waybill "$binary" serve "$model" --port 0 --served-model-name smollm2 --log-format none --threads "$threads" --drain-grace 0s
for client in ${CLIENTS:-guidellm aiperf}; do
	for streams in ${STREAMS:-1 4}; do load waybill "$client" "$streams" || status=1; done
done
kill "$server"
wait "$server" || true
start yardstick "$yardstick"
for client in ${CLIENTS:-guidellm aiperf}; do
	for streams in ${STREAMS:-1 4}; do load yardstick "$client" "$streams" || true; done
done
exit $status
