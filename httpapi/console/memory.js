import { el, svg, bytes, count, us, percent, pairs, panel } from "./dom.js";

const history = 120;

/** MemoryView shows the KV cache, the GPU and the Go runtime. */
export class MemoryView {
  constructor() {
    this.past = [];
    this.node = el("div");
  }

  keep(s) {
    this.past = this.past.concat([{ used: s.memory.blocks_used, heap: s.runtime.heap_bytes, goroutines: s.runtime.goroutines, sched: s.runtime.sched_p99_us }]).slice(-history);
  }

  draw(s) {
    const m = s.memory;
    const r = s.runtime;
    const parts = [["used", m.blocks_used], ["cached", m.blocks_cached], ["free", m.blocks_free]];
    let at = 0;
    const bar = svg("svg", { class: "blocks", viewBox: "0 0 600 24", preserveAspectRatio: "none", role: "img", "aria-label": "KV blocks" }, parts.map(([id, n]) => {
      const rect = svg("rect", { class: `b-${id}`, x: at, width: (600 * n) / Math.max(1, m.blocks_total), height: 24 }, svg("title", {}, `${id}: ${count(n)} blocks`));
      at += (600 * n) / Math.max(1, m.blocks_total);
      return rect;
    }));
    this.node.replaceChildren(
      panel("KV cache", bar, el("div", { class: "legend" }, parts.map(([id, n]) => el("span", {}, el("i", { class: `c-${id}` }), `${id} ${count(n)}`))), el("div", { class: "narrow" }, pairs([
        ["blocks", `${count(m.blocks_total)} of ${m.block_tokens} tokens`], ["prompt tokens found in the prefix cache", m.prefix_queries ? `${count(m.prefix_hits)} of ${count(m.prefix_queries)} (${percent(m.prefix_hits / m.prefix_queries)})` : "none looked up"],
        ["in the last second", m.hit_rate < 0 ? "none looked up" : percent(m.hit_rate)], ["preemptions", count(m.preemptions)],
      ])), spark(this.past.map((p) => p.used), "blocks used")),
      el("div", { class: "grid" }, this.gpu(s.gpu),
        panel("Go runtime", pairs([
          ["goroutines", count(r.goroutines)], ["GOMAXPROCS", r.gomaxprocs], ["scheduling latency p50", us(r.sched_p50_us)], ["p99", us(r.sched_p99_us)],
          ["collections", count(r.gc_cycles)], ["GC pause p99", us(r.gc_pause_p99_us)], ["GC share of CPU", percent(r.gc_cpu_share)],
          ["heap", bytes(r.heap_bytes)], ["held by the runtime", bytes(r.total_bytes)], ["allocations", count(r.allocations)],
        ]), spark(this.past.map((p) => p.heap), "heap", bytes), spark(this.past.map((p) => p.sched), "scheduling latency p99", us))));
  }

  gpu(g) {
    if (!g.available) return panel("GPU", el("p", { class: "quiet" }, g.reason));
    const or = (v, show) => (v < 0 ? "not reported" : show(v));
    return panel("GPU", g.devices.map((d) => [el("h2", {}, `${d.index} ${d.name}`), pairs([
      ["utilisation", or(d.utilisation, percent)], ["memory traffic", or(d.memory_busy, percent)], ["memory", or(d.memory_used, (v) => `${bytes(v)} of ${bytes(d.memory_total)}`)],
      ["SM clock", or(d.sm_clock_mhz, (v) => `${v} MHz`)], ["memory clock", or(d.memory_clock_mhz, (v) => `${v} MHz`)],
      ["power", or(d.power_w, (v) => `${v.toFixed(0)} of ${d.power_limit_w.toFixed(0)} W`)], ["temperature", or(d.temperature_c, (v) => `${v} °C`)], ["throttled", d.throttle || "no"],
      ["ECC errors", or(d.ecc_corrected, (v) => `${count(v)} corrected, ${count(Math.max(0, d.ecc_uncorrected))} not`)], ["processes", d.processes.length ? d.processes.map((p) => `${p.pid}: ${or(p.memory, bytes)}`).join(", ") : "none shown"],
    ])]));
  }
}

/** spark draws the last minutes of one figure. */
function spark(values, title, show = count) {
  const top = Math.max(1e-9, ...values);
  const points = values.map((v, i) => `${((i * 300) / (history - 1)).toFixed(1)},${(36 - (32 * v) / top).toFixed(1)}`).join(" ");
  return el("div", {}, svg("svg", { class: "sparkline", viewBox: "0 0 300 40", preserveAspectRatio: "none", role: "img", "aria-label": title }, svg("polyline", { class: "spark", points })),
    el("div", { class: "quiet" }, `${title}: ${show(values.at(-1) ?? 0)}, highest ${show(top < 1e-8 ? 0 : top)} in the last ${history} samples`));
}
