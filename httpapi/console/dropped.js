import { el, count, panel, pairs, bytes } from "./dom.js";
import { act } from "./api.js";

/** DroppedView counts what was refused or lost, and what watching costs. */
export class DroppedView {
  constructor() {
    this.requests = el("div");
    this.messages = el("div");
    this.cost = el("div");
    this.outcome = el("span", { class: "quiet" });
    this.drain = el("button", { type: "button", onclick: async () => {
      try { await act("drain", {}); this.outcome.textContent = "draining"; } catch (err) { this.outcome.textContent = err.message; }
    } }, "Drain this server");
    this.actions = panel("Actions", el("p", { class: "quiet" }, "Draining ends the server once what runs has ended, as SIGTERM does."), el("div", { class: "bar" }, this.drain, this.outcome));
    this.node = el("div", { class: "grid" }, panel("Requests", this.requests), panel("Messages and lines", this.messages), panel("What watching costs", this.cost), this.actions);
  }

  draw(s) {
    const list = (rows) => el("table", {}, el("tbody", {}, rows.map((r) => el("tr", {}, el("td", { class: "text" }, r.reason), el("td", {}, r.count ? el("b", {}, count(r.count)) : "0")))));
    this.requests.replaceChildren(list(s.dropped.requests));
    this.messages.replaceChildren(list(s.dropped.messages));
    const c = s.cost;
    this.cost.replaceChildren(pairs([
      ["viewers", `${c.viewers} of at most ${c.max_viewers}`], ["samples per second", c.samples_per_s.toFixed(2)], ["time per second", `${c.ms_per_s.toFixed(3)} ms`],
      ["share of one core", `${(c.ms_per_s / 10).toFixed(3)} %`], ["a sample", bytes(c.bytes)], ["samples since the start", count(c.samples)],
    ]));
    this.actions.hidden = !s.actions;
  }
}
