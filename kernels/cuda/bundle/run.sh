#!/usr/bin/env bash
# On the GPU machine: run.sh [tests|speed|serve|probe]... (all without an argument), or
# run.sh sanitize: memcheck and racecheck over the kernel and step tests, or run.sh failure. Logs go to $OUT, or to the folder out beside this file.
set -uo pipefail
cd "$(dirname "$0")"
export OUT=${OUT:-$PWD/out}
mkdir -p "$OUT"
port=8111

# server SHAPE: starts one on made-up weights and waits until it is ready.
server() {
	local from=$EPOCHREALTIME
	VT_TTFT_DUMP=1 ./waybill-cuda serve "shapes/$1" --device cuda --load-format dummy --no-enable-prefix-caching \
		--log-format none --port $port >"$OUT/serve-$1.log" 2>"$OUT/dump-$1.log" &
	pid=$!
	until curl -sf http://127.0.0.1:$port/ready >/dev/null; do
		kill -0 $pid || { tail -5 "$OUT/dump-$1.log"; return 1; }
		sleep 0.02
	done
	echo "$1: start to ready $(((${EPOCHREALTIME/./} - ${from/./}) / 1000)) ms"
}

stop() { kill -TERM $pid; wait $pid; rm -f "$OUT"/dump-*.log; }

bench() { timeout 90 ./waybill-cuda bench --base-url http://127.0.0.1:$port "$@" 2>&1; }

tests() {
	timeout 120 ./kernels.test -test.v -test.run 'TestKernels|TestSteps|TestDummy|TestLogits|TestOpen' >"$OUT/kernels.log" 2>&1
	echo "kernels: exit status $?"; grep -E -A3 -e '--- FAIL|^panic' "$OUT/kernels.log"
	(cd model && timeout 60 ../model.test -test.v -test.run TestTinyModelsOnTheGPU >"$OUT/tiny.log" 2>&1)
	echo "tiny models: exit status $?"; grep -E 'differ|off by|FAIL|^panic' "$OUT/tiny.log"
}

speed() {
	timeout 60 ./kernels.test -test.v -test.run TestProductTimes | tee "$OUT/products.log" | grep -F .go
	(cd model && timeout 120 ../model.test -test.v -test.run TestStepTimes) | tee "$OUT/steps.log" | grep -F .go
}

serve() {
	local load="--dataset-name random --metric-percentiles 50,90,99 --seed 7"
	for shape in Qwen3-0.6B Qwen3-8B; do
		server $shape || return 1
		bench $load --random-input-len 1024 --random-output-len 128 --max-concurrency 1 --num-prompts 12 --num-warmups 2
		bench $load --random-input-len 1024 --random-output-len 128 --max-concurrency 32 --num-prompts 192 --num-warmups 32
		bench $load --random-input-len 32 --random-output-len 256 --max-concurrency 1 --num-prompts 3
		bench $load --random-input-len 32 --random-output-len 256 --max-concurrency 32 --num-prompts 64
		bench $load --random-input-len 64 --random-output-len 2 --max-concurrency 1 --num-prompts 40
		stop
	done | tee "$OUT/bench.log"
}

probe() {
	for streams in 8 32; do
		server Qwen3-8B || return 1
		bench --probe phase --probe-streams $streams --probe-count 200 --probe-idle 40 --probe-input-len 64 \
			--probe-stream-len 2048 --dump-file "$OUT/dump-Qwen3-8B.log"
		stop
	done | tee "$OUT/probe.log"
}

# failure lets a step of a server read where no memory is, beside 8 streams and 4
# collected answers: each must end in one error, and the process with a status other than
# 0 and a message that names the kernel. It needs the bundle of make cuda-bundle FAULTS=1.
failure() {
	local i status answers failed=0
	WAYBILL_TEST_STRAY=400 ./waybill-cuda-faults serve shapes/Qwen3-0.6B --device cuda --load-format dummy --log-format none --port $port >"$OUT/failure.log" 2>&1 &
	pid=$!
	until curl -sf http://127.0.0.1:$port/ready >/dev/null; do
		kill -0 $pid || { tail -5 "$OUT/failure.log"; return 1; }
		sleep 0.02
	done
	for i in {1..12}; do
		curl -sN -w '\nstatus %{http_code}\n' http://127.0.0.1:$port/v1/completions -H 'Content-Type: application/json' \
			-d '{"model":"Qwen3-0.6B","prompt":"Once upon a time","max_tokens":4000,"ignore_eos":true,"stream":'$( ((i > 4)) && echo true || echo false)'}' >"$OUT/failure-$i.txt" &
		answers+=" $!"
	done
	wait $answers
	wait $pid
	status=$?
	[[ $status != 0 ]] || { echo "failure: exit status 0"; failed=1; }
	grep -m1 'kernel copy_rows: illegal address' "$OUT/failure.log" || { echo "failure: no kernel's name"; tail -5 "$OUT/failure.log"; failed=1; }
	for i in {1..12}; do
		[[ $(grep -c '"error"' "$OUT/failure-$i.txt") == 1 ]] || { echo "failure: answer $i has not one error:"; tail -c 300 "$OUT/failure-$i.txt"; failed=1; }
	done
	echo "failure: exit status of the server $status; statuses of the answers: $(grep -h ^status "$OUT"/failure-*.txt | sort | uniq -c | tr '\n' ' ')"
	return $failed
}

# sanitize runs the kernel and step tests under both tools, but for the two that racecheck was
# not tried with, all side by side. Patterns have both ends: a test whose name only begins alike
# would run whole beside each of TestKernels' parts. LIMIT (170) is the time
# for each in seconds; one that is cut off has shown nothing up to there and counts as
# not done. Racecheck leaves FlashInfer's kernels out: under it alone, and without a
# hazard reported, its Hopper kernel's results are wrong.
sanitize() {
	local tool test log status failed=0
	for tool in memcheck racecheck; do
		for test in MatMul NotFinite Embed Rows Rope Attention Stores; do one $tool "^TestKernels\$/^$test\$" & done
		one $tool '^TestKernelsStreamLarge$' &
		[[ $tool == racecheck ]] || one $tool '^TestKernelsGated$' &
		[[ $tool == racecheck ]] || one $tool '^TestKernelsWide$' &
		for test in TestSteps TestLogits TestDraws TestAStep; do one $tool $test & done
	done
	wait
	for log in "$OUT"/sanitize-*.log; do
		status=$(tail -1 "$log")
		[[ $status == *": clean"* ]] || failed=1
		echo "$status"
	done
	return $failed
}

# one TOOL TEST
one() {
	local log="$OUT/sanitize-$1-${2//[^A-Za-z]/}.log" exclude= said summary
	# racecheck runs one kernel at a time: one that waits for the host would never end.
	[[ $1 == racecheck ]] && exclude="--kernel-name-exclude kernel_substring=flashinfer" && export WAYBILL_TEST_AHEAD=0
	timeout -k 5 ${LIMIT:-170} compute-sanitizer --tool $1 $exclude --error-exitcode 99 --print-limit 20 \
		./kernels.test -test.v -test.short -test.run "$2" >"$log" 2>&1
	case $? in
	0) said=clean ;;
	99) said=errors ;;
	124 | 137) said="cut off, nothing found so far" ;;
	*) said="test failed" ;;
	esac
	summary=$(grep SUMMARY "$log" | tail -1)
	case $summary in
	*"SUMMARY: 0 errors"* | *"SUMMARY: 0 hazards"*) ;;
	"") [[ $said == clean ]] && said="no summary" ;;
	*) said=${summary#========= } ;;
	esac
	echo "$1 $2: $said" >>"$log"
}

for part in ${@:-tests speed serve probe}; do $part; done
