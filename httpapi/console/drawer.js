import { el, ms, pairs, count } from "./dom.js";
import { get, act } from "./api.js";
import { waterfall } from "./waterfall.js";

/** Drawer shows one request or one actor beside the view. */
export class Drawer {
  constructor(node) {
    this.node = node;
  }

  /** close hides it and reports whether it was open. */
  close() {
    if (this.node.hidden) return false;
    this.node.hidden = true;
    location.hash = location.hash.split("/")[0];
    document.getElementById("view").focus();
    return true;
  }

  open(title, ...content) {
    this.node.hidden = false;
    this.node.replaceChildren(el("div", { class: "bar" }, el("h2", {}, title), el("span", { class: "grow" }),
      el("button", { type: "button", onclick: () => this.close() }, "Close")), el("div", {}, content));
  }

  async request(rid) {
    try {
      const w = await get(`requests/${encodeURIComponent(rid)}`);
      const running = w.reason === "running";
      const outcome = el("span", { class: "quiet" });
      const cancel = el("button", { type: "button", onclick: async () => {
        try { await act("cancel", { rid }); outcome.textContent = "cancelled"; } catch (err) { outcome.textContent = err.message; }
      } }, "Cancel this request");
      this.open(`Request ${w.rid}`,
        el("div", { class: "bar" }, el("span", { class: `badge ${w.reason === "error" || w.reason === "abort" ? "bad" : ""}` }, w.state),
          w.failure ? el("span", { class: "bad" }, w.failure) : null,
          running ? [el("button", { type: "button", onclick: () => this.request(rid) }, "Look again"), cancel, outcome] : null),
        waterfall(w),
        w.parts.length ? el("div", {}, el("h2", {}, "Split"), el("table", { id: "parts" }, el("tbody", {}, w.parts.map((p) => el("tr", { "data-part": p.name }, el("td", {}, p.name), el("td", {}, `${p.ms.toFixed(3)} ms`)))))) : null,
        el("h2", {}, "Counters"), pairs([
          ["prompt tokens", `${count(w.prompt)}, ${count(w.cached)} cached`], ["output tokens", count(w.output)], ["prefill chunks", count(w.prefill_chunks)],
          ["steps waited", count(w.steps_waited)], ["preemptions", `${w.preemptions}${w.preemptions ? `, ${ms(w.preempted_ms)} lost` : ""}`],
          ["in the kernel before arrival", w.kernel_ms >= 0 ? ms(w.kernel_ms) : "not known"],
        ]),
        w.dump ? [el("h2", {}, "Dump line"), el("pre", { id: "dump", class: "wrap" }, w.dump)] : null,
        w.content_shown ? [el("h2", {}, "Prompt"), el("pre", { class: "wrap" }, w.prompt_text), el("h2", {}, "Output"), el("pre", { class: "wrap" }, w.output_text)]
          : el("p", { class: "quiet" }, "Prompt and output are hidden: the server was started without --console-show-content."));
    } catch (err) {
      this.open(`Request ${rid}`, el("p", { class: "bad" }, err.message));
    }
  }

  async actor(name) {
    try {
      const v = await get(`actors/${encodeURIComponent(name)}`);
      const value = (f) => (typeof f.value === "number" && f.unit === "ms" ? ms(f.value) : typeof f.value === "number" ? `${count(f.value)} ${f.unit}` : String(f.value));
      this.open(`Actor ${v.name}`, el("div", { class: "bar" }, el("span", { class: "badge" }, v.kind), el("button", { type: "button", onclick: () => this.actor(name) }, "Look again")),
        pairs(v.fields.map((f) => [f.key, value(f)])), v.stack ? [el("h2", {}, "Stack now"), el("pre", {}, v.stack)] : null);
    } catch (err) {
      this.open(`Actor ${name}`, el("p", { class: "bad" }, err.message));
    }
  }
}
