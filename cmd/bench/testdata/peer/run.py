"""Compares waybill with llama.cpp on this machine, in interleaved pairs.

    run.py PEER_DIRECTORY WAYBILL BENCHMARK MODEL.gguf

BENCHMARK is the test binary of package model. PAIRS=7 is how often each pair is
measured, PARTS="kernels busy server probe" what is, STREAMS="1 2 4 8 16" the
clients of the server part; SERVE holds more flags of `waybill serve`. The speed of a shared machine drifts, so only the two
numbers of a pair are compared; the table gives medians: of the ratios, and of
either side. Ratios are waybill's number over llama.cpp's.
"""

import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

peer, waybill, benchmark, model = (os.path.abspath(a) for a in sys.argv[1:5])
pairs = int(os.environ.get("PAIRS", 7))
parts = os.environ.get("PARTS", "kernels busy server probe").split()
streams = [int(c) for c in os.environ.get("STREAMS", "1 2 4 8 16").split()]
threads = os.cpu_count()
ours, theirs = {}, {}  # measurement: one number for each pair


def note(side, what, value):
    side.setdefault(what, []).append(value)


def output(*command, **kw):
    r = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kw)
    if r.returncode:
        sys.exit(f"run.py: {command[0]} failed with status {r.returncode}:\n{r.stdout[-2000:]}{r.stderr[-2000:]}")
    return r.stdout


def tool(name, *args):
    return output(f"{peer}/build/bin/{name}", "-m", model, "-t", str(threads), *args)


def bench_waybill(which, rounds):
    """Returns tokens per second by name of the benchmark."""
    env = {**os.environ, "WAYBILL_MODELS": os.path.dirname(model)}
    out = output(benchmark, "-test.run", "^$", "-test.bench", f"SmolLM2/({which})$", "-test.benchtime", f"{rounds}x", env=env)
    return {m[1]: float(m[2]) for m in re.finditer(r"SmolLM2/(\S+?)(?:-\d+)?\s.*?([\d.]+) tok/s", out)}


def bench_llama(depth, *args):
    rows = map(json.loads, tool("llama-bench", "-r", "1", "-o", "jsonl", "-d", str(depth), *args).splitlines())
    return [(r["n_prompt"], r["n_gen"], r["avg_ts"]) for r in rows]


def measure_kernels():
    for prompt, _, rate in bench_llama(0, "-p", "64,512,1024", "-n", "0"):
        note(theirs, f"prefill {prompt}, tok/s", rate)
    for name, rate in bench_waybill("prefill=.*", 1).items():
        note(ours, f"prefill {name.split('=')[1]}, tok/s", rate)
    for _, _, rate in bench_llama(128, "-p", "0", "-n", "64"):
        note(theirs, "decode 1 rows, tok/s", rate)
    batched = tool("llama-batched-bench", "-c", "4096", "-npp", "128", "-ntg", "64", "-npl", "2,4,8", "--output-format", "jsonl")
    for line in batched.splitlines():
        if line.startswith("{"):
            r = json.loads(line)
            note(theirs, f"decode {r['pl']} rows, tok/s", r["speed_tg"])
    for name, rate in bench_waybill("decode=[1248]", 64).items():
        note(ours, f"decode {name.split('=')[1]} rows, tok/s", rate)


def measure_busy():
    """Decode of one row alone and beside one process that computes all the time."""
    share = "decode 1 row beside a busy process, share of its quiet rate"
    for side, rate in ((theirs, lambda: bench_llama(128, "-p", "0", "-n", "32")[0][2]), (ours, lambda: bench_waybill("decode=1", 96)["decode=1"])):
        quiet = rate()
        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            time.sleep(0.2)
            note(side, share, rate() / quiet)
        finally:
            busy.kill()
            busy.wait()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def serve(log, *command):
    """Starts a server and returns it when it answers."""
    port = free_port()
    process = subprocess.Popen([*command, "--port", str(port)], stdout=log, stderr=log)
    for _ in range(600):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=2) as r:
                if json.load(r).get("data"):
                    return process, port
        except (OSError, ValueError):
            pass
        if process.poll() is not None:
            break
        time.sleep(0.1)
    process.kill()
    log.seek(0)
    sys.exit(f"run.py: {command[0]} did not start:\n{log.read()[-2000:]}")


def client(port, folder, *args):
    output(waybill, "bench", "--base-url", f"http://127.0.0.1:{port}", "--save-result", "--result-dir", folder, "--result-filename", "r.json", *args)
    with open(f"{folder}/r.json") as f:
        r = json.load(f)
    if r.get("failed") or r.get("probe_failed"):
        sys.exit(f"run.py: requests failed: {r['failed_reasons']}")
    return r


def measure_server(side, port, folder, seed):
    for c in streams:
        r = client(port, folder, "--num-prompts", str(max(6, 2 * c)), "--max-concurrency", str(c), "--input-len", "256",
                   "--output-len", "64", "--num-warmups", "1", "--seed", str(seed * 100 + c))
        for what, key in (("TTFT p50, ms", "median_ttft_ms"), ("TTFT p99, ms", "p99_ttft_ms"), ("output tok/s", "output_throughput")):
            note(side, f"c{c}: {what}", r[key])


def measure_probe(side, port, folder, seed):
    r = client(port, folder, "--probe", "phase", "--probe-streams", "4", "--probe-count", "30", "--probe-idle", "3",
               "--probe-input-len", "64", "--seed", str(seed))
    note(side, "late-comer beside 4 streams: TTFT mean, ms", r["mean_added_ms"] + r["median_idle_ttft_ms"])
    note(side, "streams' steps meanwhile: p99, ms", r["p99_step_ms"])


def measure_servers():
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/ours", "w+") as a, open(f"{folder}/theirs", "w+") as b:
        processes = []
        try:
            processes.append(serve(a, waybill, "serve", model, "--log-format", "none", "--drain-grace", "0s", "--threads", str(threads),
                                   *os.environ.get("SERVE", "").split()))
            processes.append(serve(b, f"{peer}/build/bin/llama-server", "-m", model, "-t", str(threads), "-np", "8", "-c", "16384",
                                   "--no-webui", "--cache-ram", "0", "--no-cache-prompt", "--host", "127.0.0.1"))
            sides = list(zip((ours, theirs), processes))
            for i in range(pairs):
                for side, (_, port) in sides if i % 2 else sides[::-1]:
                    if "server" in parts:
                        measure_server(side, port, folder, i)
                    if "probe" in parts:
                        measure_probe(side, port, folder, i)
                print(f"pair {i + 1} of {pairs} of the servers", file=sys.stderr, flush=True)
        finally:
            for p, _ in processes:
                p.kill()
                p.wait()


def report():
    print(f"{'':<60} {'waybill':>9} {'llama.cpp':>9} {'ratio':>6}  lowest and highest ratio, pairs")
    for what, a in ours.items():
        ratios = [x / y for x, y in zip(a, theirs.get(what, []))]
        if not ratios:
            continue
        print(f"{what:<60} {statistics.median(a):9.3g} {statistics.median(theirs[what]):9.3g} {statistics.median(ratios):6.2f}  {min(ratios):.2f} to {max(ratios):.2f}, {len(ratios)}")


def stop(*_):
    sys.exit("run.py: stopped; the table is of the pairs so far")


signal.signal(signal.SIGTERM, stop)
try:
    for i in range(pairs):
        if "kernels" in parts:
            measure_kernels()
        if "busy" in parts:
            measure_busy()
        if {"kernels", "busy"} & set(parts):
            print(f"pair {i + 1} of {pairs} of the kernels", file=sys.stderr, flush=True)
    if {"server", "probe"} & set(parts):
        measure_servers()
finally:
    report()
