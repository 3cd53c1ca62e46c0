import { el, ms, bytes, count, clock } from "./dom.js";
import { Table } from "./table.js";

const lists = [["live", "Running"], ["recent", "Ended"], ["slowest", "Slowest"]];

/** RequestsView lists sequences: under way, ended, and the slowest ones kept. */
export class RequestsView {
  constructor(drawer) {
    this.list = "live";
    this.table = new Table({
      name: "requests", id: (r) => r.rid, sort: "arrived", empty: "No request here.",
      open: (r) => { location.hash = `requests/${encodeURIComponent(r.rid)}`; drawer.request(r.rid); },
      columns: [
        { key: "rid", title: "request", text: true }, { key: "state", title: "state", text: true },
        { key: "arrived", title: "arrived", show: (r) => clock(r.arrived) }, { key: "age_ms", title: "time", show: (r) => ms(r.age_ms) },
        { key: "ttft_ms", title: "TTFT", show: (r) => (r.ttft_ms ? ms(r.ttft_ms) : "–") },
        { key: "prompt", title: "prompt", show: (r) => count(r.prompt) }, { key: "cached", title: "cached", wide: true, show: (r) => count(r.cached) },
        { key: "output", title: "output", show: (r) => count(r.output) },
        { key: "pending_bytes", title: "unsent", wide: true, show: (r) => (r.pending_bytes ? bytes(r.pending_bytes) : "–") },
        { key: "lag_ms", title: "client lag", show: (r) => (r.lag_ms > 100 ? el("span", { class: "bad" }, ms(r.lag_ms)) : r.lag_ms ? ms(r.lag_ms) : "–") },
        { key: "preemptions", title: "preempted", wide: true },
      ],
    });
    this.choices = el("div", { class: "choices", role: "group", "aria-label": "Which requests" }, lists.map(([id, title]) => el("button", {
      type: "button", "data-list": id, "aria-pressed": id === this.list, onclick: () => this.choose(id),
    }, title)));
    this.node = el("section", { class: "panel" }, el("div", { class: "bar" }, this.choices, this.table.input, this.table.note), this.table.node);
  }

  choose(id) {
    this.list = id;
    this.table.sort = id === "slowest" ? "ttft_ms" : "arrived";
    this.table.descending = true;
    for (const b of this.choices.children) b.setAttribute("aria-pressed", b.dataset.list === id);
    if (this.last) this.draw(this.last);
  }

  draw(s) {
    this.last = s;
    const counts = { live: s.requests.open, recent: s.requests.recent.length, slowest: s.requests.slowest.length };
    for (const b of this.choices.children) b.textContent = `${lists.find(([id]) => id === b.dataset.list)[1]} ${counts[b.dataset.list]}`;
    this.table.set(s.requests[this.list], counts[this.list]);
  }
}
