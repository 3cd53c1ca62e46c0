import { el, svg, ms } from "./dom.js";

const kinds = [["wait", "wait"], ["handler", "handler"], ["device", "device"], ["socket", "socket"]];
const row = 18;
const left = 140; // of the labels

/** waterfall draws a request's spans, one row each, on a common axis. */
export function waterfall(w) {
  const spans = w.spans.filter((s) => s.to_ms > s.from_ms);
  const first = w.milestones.find((m) => m.name === "first_byte") ?? w.milestones.find((m) => m.name === "first_token");
  const end = Math.max(...w.spans.map((s) => s.to_ms), ...w.milestones.filter((m) => m.name !== "released").map((m) => m.ms), 0.001);
  const part = (title, until, list) => chart(title, until, list, w.milestones);
  const head = first ? spans.filter((s) => s.from_ms < first.ms && s.name !== "decode") : spans;
  return el("div", { id: "waterfall" }, el("div", { class: "legend" }, kinds.map(([id, title]) => el("span", {}, el("i", { class: `c-${id}` }), title))),
    part(first ? `To the first byte: ${ms(first.ms)}` : `Until now: ${ms(end)}`, first ? first.ms : end, head),
    first && end > first.ms ? part(`In all: ${ms(end)}`, end, spans.filter((s) => s.name !== "prefill chunk")) : null);
}

function chart(title, end, spans, milestones) {
  // Text keeps its size on a phone: the drawing is as wide as its place.
  const width = Math.max(330, Math.min(720, innerWidth - 36));
  // Chunks of a long prompt share one row, behind the prefill that they make up.
  const rows = [];
  for (const s of spans) {
    const same = rows.find((r) => r.name === s.name && (s.name === "prefill chunk" || s.name === "preempted"));
    if (same) same.spans.push(s);
    else rows.push({ name: s.name, lane: s.lane, spans: [s] });
  }
  const x = (v) => left + ((width - left - 60) * Math.min(v, end)) / end;
  const height = rows.length * row + 22;
  return el("div", {}, el("h2", {}, title), svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title },
    (width < 500 ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1]).map((f) => [svg("line", { class: "axis", x1: x(f * end), x2: x(f * end), y1: 0, y2: height - 18 }), svg("text", { x: x(f * end), y: height - 5, "text-anchor": "middle" }, ms(f * end))]),
    milestones.filter((m) => m.ms > 0 && m.ms <= end).map((m) => svg("line", { class: "axis", x1: x(m.ms), x2: x(m.ms), y1: 0, y2: height - 18, "stroke-dasharray": "2 3" }, svg("title", {}, `${m.name} at ${ms(m.ms)}`))),
    rows.map((r, i) => {
      const total = r.spans.reduce((a, s) => a + Math.min(s.to_ms, end) - s.from_ms, 0);
      const last = Math.max(...r.spans.map((s) => s.to_ms));
      return [
        svg("text", { class: "label", x: left - 8, y: i * row + 13, "text-anchor": "end" }, r.spans.length > 1 ? `${r.spans.length} × ${r.name}` : r.name),
        r.spans.map((s) => svg("rect", { class: `k-${s.kind}`, x: x(s.from_ms), y: i * row + 3, height: row - 6, width: Math.max(1, x(s.to_ms) - x(s.from_ms) - (r.spans.length > 1 ? 0.5 : 0)), rx: 2 },
          svg("title", {}, `${s.name}, ${s.lane}: ${ms(s.to_ms - s.from_ms)}${s.tokens ? `, ${s.tokens} tokens in step ${s.step}` : ""}`))),
        svg("text", { x: x(last) + 5, y: i * row + 13 }, ms(total)),
      ];
    })));
}
