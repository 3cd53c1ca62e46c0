import { el, ms, us, rate, percent, count, pairs, panel } from "./dom.js";

/** PipelineView draws the actors' kinds in the order of a request's way. */
export class PipelineView {
  constructor(drawer) {
    this.drawer = drawer;
    this.map = el("div", { class: "pipeline" });
    this.numbers = el("div", { class: "grid" });
    this.stuck = el("div");
    this.node = el("div", {}, panel("From a request's first byte to its last", this.map), this.numbers, this.stuck);
  }

  draw(s) {
    this.map.replaceChildren(this.edge(s.pipeline[0], true), ...s.pipeline.flatMap((g, i) => [i ? this.edge(g) : null, this.stage(g)]).filter(Boolean));
    const steps = s.steps.length ? s.steps : [];
    const mean = (f) => (steps.length ? steps.reduce((a, x) => a + f(x), 0) / steps.length : 0);
    const seconds = s.interval_ms / 1000 || 1;
    this.numbers.replaceChildren(
      panel("Sequences", pairs([
        ["in intake", count(s.places.intake)], ["waiting", count(s.places.waiting)], ["running", count(s.places.running)],
        ["places in use", `${count(s.places.used)} of ${count(s.places.limit)}`],
      ])),
      panel("Last second", pairs([
        ["steps", rate(steps.length / seconds)], ["mean step", ms(mean((x) => x.ms))], ["mean rows", mean((x) => x.rows).toFixed(1)],
        ["prompt tokens", rate(steps.reduce((a, x) => a + x.prefill_tokens, 0) / seconds)],
        ["output tokens", rate(steps.reduce((a, x) => a + x.decode_rows, 0) / seconds)],
      ])),
      panel("Slowest first tokens kept", s.requests.slowest.length ? el("dl", {}, s.requests.slowest.slice(0, 5).map((r) => [
        el("dt", {}, el("a", { href: `#requests/${encodeURIComponent(r.rid)}` }, r.rid)), el("dd", {}, r.ttft_ms ? ms(r.ttft_ms) : `${ms(r.age_ms)} in all`),
      ])) : el("p", { class: "quiet" }, "None yet.")),
    );
    const open = s.stuck.filter((x) => !x.over);
    this.stuck.replaceChildren(...open.map((x) => panel("Stuck", el("p", { class: "bad" }, `${x.actor} has been handling ${x.message} for ${ms(x.for_ms)}.`), el("pre", {}, x.stack))));
  }

  edge(g, first = false) {
    const gap = g.kind === "gpu-step";
    return el("div", { class: "edge", title: first ? "requests from the HTTP server" : `into ${g.kind}` },
      el("b", {}, rate(g.per_s)), el("span", { class: "arrow", "aria-hidden": true }, "→"),
      el("span", {}, gap ? "gap p50 " : "wait p50 ", el("b", {}, us(g.wait_p50_us))), el("span", {}, "p99 ", el("b", {}, us(g.wait_p99_us))));
  }

  stage(g) {
    const bar = el("i");
    bar.style.width = `${Math.min(100, 100 * g.utilisation)}%`;
    return el("div", { class: "stage", "data-kind": g.kind }, el("h3", {}, g.kind, el("span", { class: "quiet" }, ` × ${g.actors}`)),
      el("div", { class: "util", title: `busy ${percent(g.utilisation)} of the time` }, bar),
      pairs([
        ["busy", percent(g.utilisation)], ["waiting", count(g.depth)], ["oldest", g.oldest_ms ? ms(g.oldest_ms) : "–"],
        [g.kind === "gpu-step" ? "step p50" : g.kind === "sse-writer" ? "write p50" : "handle p50", us(g.handle_p50_us)], ["p99", us(g.handle_p99_us)],
        [g.state, ms(g.state_since_ms)],
      ]));
  }
}
