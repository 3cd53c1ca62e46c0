import { el, svg, ms, us, count, clock, panel } from "./dom.js";
import { Table } from "./table.js";

const kept = 4000;
const height = 150;

/** StepsView draws engine steps as they follow one another. */
export class StepsView {
  constructor() {
    this.steps = [];
    this.seconds = 2;
    this.chart = el("div");
    this.span = el("div", { class: "choices", role: "group", "aria-label": "Seconds shown" }, [0.5, 2, 10].map((s) => el("button", {
      type: "button", "aria-pressed": s === this.seconds, onclick: (e) => {
        this.seconds = s;
        for (const b of e.target.parentNode.children) b.setAttribute("aria-pressed", b === e.target);
        this.draw();
      },
    }, `${s} s`)));
    this.table = new Table({
      name: "steps", id: (r) => `${r.epoch}.${r.step}`, sort: "at", empty: "No step has run since this page was opened.",
      columns: [
        { key: "step", title: "step", show: (r) => `${r.epoch}.${r.step}` }, { key: "at", title: "launched", show: (r) => clock(r.at) },
        { key: "ms", title: "device time", show: (r) => ms(r.ms) }, { key: "predicted_ms", title: "expected", wide: true, show: (r) => ms(r.predicted_ms) },
        { key: "rows", title: "rows" }, { key: "prefill_tokens", title: "prompt tokens", show: (r) => count(r.prefill_tokens) }, { key: "decode_rows", title: "decode rows" },
        { key: "gap_us", title: "gap before", show: (r) => (r.gap_us ? us(r.gap_us) : "–") }, { key: "gap_actor", title: "gap by", text: true },
        { key: "device_idle_us", title: "by the device's clock", wide: true, show: (r) => (r.device_idle_us < 0 ? "–" : us(r.device_idle_us)) },
        { key: "changed", title: "members", wide: true, show: (r) => (r.changed ? "changed" : "same") },
      ],
    });
    this.node = el("div", {}, panel("Steps", el("div", { class: "bar" }, this.span, el("div", { class: "legend" },
      el("span", {}, el("i", { class: "c-socket" }), "with prefill"), el("span", {}, el("i", { class: "c-device" }), "decode only"), el("span", {}, el("i", { class: "c-wait" }), "gap"),
      el("span", {}, "height: tokens in the step"))), this.chart),
    panel("The last steps", el("div", { class: "bar" }, this.table.input, this.table.note), this.table.node));
  }

  /** keep collects the steps of every sample, also while another view is shown. */
  keep(s) {
    this.steps = this.steps.concat(s.steps).slice(-kept);
  }

  draw() {
    const width = Math.max(320, this.chart.clientWidth || 1200); // text keeps its size on a phone
    const last = this.steps.at(-1);
    const end = last ? last.at + last.ms : 0;
    const from = end - 1000 * this.seconds;
    const shown = this.steps.filter((s) => s.at + s.ms > from);
    const most = Math.max(1, ...shown.map((s) => s.prefill_tokens + s.decode_rows));
    const x = (t) => (width * (t - from)) / (end - from || 1);
    const y = (n) => 12 + (height - 32) * (1 - Math.log1p(n) / Math.log1p(most));
    this.chart.replaceChildren(svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Steps over time" },
      shown.flatMap((s) => {
        const tokens = s.prefill_tokens + s.decode_rows;
        const title = `step ${s.epoch}.${s.step}: ${ms(s.ms)}, ${s.rows} rows, ${s.prefill_tokens} prompt tokens, ${s.decode_rows} decode rows; gap before ${us(s.gap_us)}${s.gap_actor ? `, ${s.gap_actor}` : ""}`;
        return [
          svg("rect", { class: s.prefill_tokens ? "k-prefill" : "k-decode", x: x(s.at), width: Math.max(0.5, x(s.at + s.ms) - x(s.at)), y: y(tokens), height: height - 20 - y(tokens) }, svg("title", {}, title)),
          s.gap_us ? svg("rect", { class: "k-gap", x: x(s.at - s.gap_us / 1000), width: Math.max(0.5, x(s.at) - x(s.at - s.gap_us / 1000)), y: height - 26, height: 6 }, svg("title", {}, `gap of ${us(s.gap_us)}, ${s.gap_actor}`)) : null,
        ];
      }),
      svg("line", { class: "axis", x1: 0, x2: width, y1: height - 20, y2: height - 20 }),
      [0, 0.25, 0.5, 0.75].map((f) => svg("text", { x: width * f, y: height - 6 }, `−${ms(1000 * this.seconds * (1 - f))}`)),
      svg("text", { x: width, y: height - 6, "text-anchor": "end" }, last ? clock(end) : "")));
    this.table.set(this.steps.slice(-200), this.steps.length);
  }
}
