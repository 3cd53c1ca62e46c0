import { el, ms, us, rate, percent, count, clock, panel } from "./dom.js";
import { Table } from "./table.js";

/** ActorsView lists the long-lived actors, their tree and their failures. */
export class ActorsView {
  constructor(drawer) {
    this.table = new Table({
      name: "actors", id: (r) => r.name, sort: "per_s",
      open: (r) => { location.hash = `actors/${encodeURIComponent(r.name)}`; drawer.actor(r.name); },
      columns: [
        { key: "name", title: "actor", text: true }, { key: "kind", title: "kind", text: true, wide: true },
        { key: "state", title: "state", text: true, show: (r) => `${r.state} ${ms(r.state_ms)}` },
        { key: "utilisation", title: "busy", show: (r) => percent(r.utilisation) }, { key: "per_s", title: "messages/s", show: (r) => rate(r.per_s) },
        { key: "depth", title: "waiting", show: (r) => count(r.depth) }, { key: "oldest_ms", title: "oldest", wide: true, show: (r) => (r.oldest_ms ? ms(r.oldest_ms) : "–") },
        { key: "wait_p50_us", title: "wait p50", show: (r) => us(r.wait_p50_us) }, { key: "wait_p99_us", title: "p99", show: (r) => us(r.wait_p99_us) },
        { key: "handle_p50_us", title: "handle p50", wide: true, show: (r) => us(r.handle_p50_us) }, { key: "handle_p99_us", title: "p99", wide: true, show: (r) => us(r.handle_p99_us) },
        { key: "handled", title: "handled", wide: true, show: (r) => count(r.handled) }, { key: "panics", title: "failures", show: (r) => (r.panics ? el("span", { class: "bad" }, r.panics) : "0") },
      ],
    });
    this.tree = el("ul", { class: "tree" });
    this.restarts = el("ol", { class: "timeline", "aria-label": "Restarts" });
    this.stuck = el("ol", { class: "timeline", "aria-label": "Stuck handlers" });
    this.node = el("div", {}, el("section", { class: "panel" }, el("div", { class: "bar" }, this.table.input, this.table.note), this.table.node),
      el("div", { class: "grid" }, panel("Supervision", this.tree), panel("Failures and restarts", this.restarts), panel("Stuck handlers", this.stuck)));
  }

  draw(s) {
    this.table.set(s.actors);
    const children = (parent) => s.actors.filter((a) => a.parent === parent).map((a) => el("li", {}, a.name,
      a.restarts ? el("span", { class: "bad" }, ` restarted ${a.restarts}×`) : null, el("span", { class: "quiet" }, ` ${ms(a.age_s * 1000)}`), el("ul", {}, children(a.name))));
    this.tree.replaceChildren(...children(""));
    fold(this.restarts, s.restarts, (r) => `${r.at}${r.actor}`, (r) => [
      el("div", {}, el("b", {}, r.actor), ` failed at ${clock(r.at)}`), el("div", { class: "bad" }, r.reason),
      el("div", { class: "quiet" }, r.message ? `while handling ${r.message}` : "while deciding", r.lost ? `; ${r.lost}` : ""),
      el("details", {}, el("summary", {}, "stack"), el("pre", {}, r.stack)),
    ], "Nothing has failed.");
    fold(this.stuck, s.stuck, (r) => `${r.at}${r.actor}`, (r) => [
      el("div", {}, el("b", {}, r.actor), ` at ${clock(r.at)}${r.over ? ", over now" : ""}`),
      el("div", { class: r.over ? "quiet" : "bad" }, `${r.message} for ${ms(r.for_ms)}`),
      el("details", {}, el("summary", {}, "stack"), el("pre", {}, r.stack)),
    ], "No handler was stuck.");
  }
}

/** fold redraws a list whose open entries stay open. */
function fold(list, rows, key, show, empty) {
  const open = new Set([...list.querySelectorAll("details[open]")].map((d) => d.closest("li").dataset.key));
  list.replaceChildren(...rows.map((r) => el("li", { "data-key": key(r) }, show(r))));
  for (const li of list.children) if (open.has(li.dataset.key)) li.querySelector("details").open = true;
  if (!rows.length) list.append(el("div", { class: "quiet" }, empty));
}
