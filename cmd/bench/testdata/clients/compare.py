"""Puts a client's times beside the server's own, request by request.

    compare.py guidellm|aiperf RESULT SERVER_LOG

RESULT is guidellm's JSON report or aiperf's profile_export.jsonl; SERVER_LOG holds
the TTFTSPLIT lines of the same requests. Exit status 1: client and server differ about
the median request's TTFT or mean gap between tokens by more than 1 ms + 2 %, or
requests are missing.
"""

import json
import sys


def guidellm(path):
    """Yields request id, TTFT and mean inter-token latency in ms."""
    with open(path) as f:
        for benchmark in json.load(f)["benchmarks"]:
            for r in benchmark["requests"]["successful"]:
                # The response's id carries the server's request id.
                yield r["response_id"].split("-", 1)[1], r["time_to_first_token_ms"], r["inter_token_latency_ms"]


def aiperf(path):
    """The same; aiperf sends its own X-Request-Id."""
    with open(path) as f:
        for line in f:
            r = json.loads(line)
            if r["metadata"]["benchmark_phase"] == "profiling" and not r.get("error"):
                m = r["metrics"]
                yield r["metadata"]["x_request_id"], m["time_to_first_token"]["value"], m["inter_token_latency"]["value"]


def ledger(path):
    """Returns the dump lines by request id."""
    out = {}
    with open(path) as f:
        for line in f:
            if line.startswith("TTFTSPLIT "):
                fields = dict(f.split("=", 1) for f in line.split()[1:])
                out[fields["rid"]] = fields
    return out


def quantile(values, q):
    values = sorted(values)
    return values[round(q * (len(values) - 1))]


def main():
    kind, result, log = sys.argv[1:]
    server = ledger(log)
    pairs = {"TTFT": [], "ITL": []}
    missing = 0
    for rid, ttft, itl in {"guidellm": guidellm, "aiperf": aiperf}[kind](result):
        line = server.get(rid)
        if line is None:
            missing += 1
            continue
        pairs["TTFT"].append((ttft, float(line["ttft"])))
        pairs["ITL"].append((itl, float(line["decode"]) / (int(line["out"]) - 1)))
    n = len(pairs["TTFT"])
    print(f"{kind}: {n} requests, {missing} unknown to the server's ledger; ms")
    print(f"  {'':5} {'client p50':>11} {'server p50':>11} {'client p99':>11} {'server p99':>11} {'pair p50':>9} {'pair p99':>9} {'within':>7}")
    bad = n == 0 or missing > 0
    for name, values in pairs.items():
        if not values:
            continue
        client, own = [c for c, _ in values], [s for _, s in values]
        off = [c - s for c, s in values]
        near = lambda c, s: abs(c - s) <= 1 + 0.02 * s
        within = sum(near(c, s) for c, s in values) / len(values)
        q = lambda v, p: quantile(v, p)
        print(
            f"  {name:5} {q(client, .5):11.3f} {q(own, .5):11.3f} {q(client, .99):11.3f} {q(own, .99):11.3f}"
            f" {q(off, .5):9.3f} {q(off, .99):9.3f} {100 * within:6.1f}%"
        )
        # Of pairs: medians of two distributions may sit on either side of a gap.
        if abs(q(off, 0.5)) > 1 + 0.02 * q(own, 0.5):
            print(f"  {name}: client and server differ by more than 1 ms + 2 %")
            bad = True
    sys.exit(bad)


main()
