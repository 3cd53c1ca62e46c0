import { el } from "./dom.js";

/**
 * Table keeps sorting, filter and the current row over new data.
 *
 * columns: {key, title, text, show(row), wide}; id(row) names a row, open(row) is
 * called for a click or Enter.
 */
export class Table {
  constructor({ name, columns, id, open, sort, descending = true, empty = "Nothing to show." }) {
    Object.assign(this, { name, columns, id, open, sort, descending, empty, filter: "", rows: [] });
    this.input = el("input", { type: "search", placeholder: "Filter", "aria-label": `Filter ${name}`, oninput: () => { this.filter = this.input.value; this.draw(); } });
    this.note = el("span", { class: "quiet" });
    this.head = el("tr");
    this.body = el("tbody");
    this.node = el("div", { class: "scroll" }, el("table", { "aria-label": name }, el("thead", {}, this.head), this.body));
  }

  /** set shows rows; total is how many there are if rows was cut. */
  set(rows, total = rows.length) {
    this.rows = rows;
    this.total = total;
    this.draw();
  }

  sorted() {
    const words = this.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = this.rows.filter((r) => {
      const text = this.columns.map((c) => String(r[c.key])).join(" ").toLowerCase();
      return words.every((w) => text.includes(w));
    });
    if (!this.sort) return rows;
    const by = (a, b) => (typeof a === "string" ? a.localeCompare(b) : a - b);
    return [...rows].sort((a, b) => (this.descending ? -1 : 1) * by(a[this.sort], b[this.sort]) || String(this.id(a)).localeCompare(String(this.id(b))));
  }

  draw() {
    // The row with the focus keeps it: rows are made anew each second.
    const focused = document.activeElement?.closest?.("tr")?.dataset.id;
    const mine = this.body.contains(document.activeElement);
    this.head.replaceChildren(...this.columns.map((c) => el("th", {
      class: `${c.text ? "text" : ""} ${c.wide ? "wide" : ""}`, scope: "col",
      "aria-sort": this.sort === c.key ? (this.descending ? "descending" : "ascending") : null,
    }, el("button", { type: "button", onclick: () => this.sortBy(c.key) }, c.title))));
    const rows = this.sorted();
    this.body.replaceChildren(...rows.map((r) => el("tr", {
      tabindex: this.open ? 0 : null, "data-id": this.id(r),
      onclick: () => this.open?.(r), onkeydown: (e) => { if (e.key === "Enter") this.open?.(r); },
    }, this.columns.map((c) => el("td", { class: `${c.text ? "text" : ""} ${c.wide ? "wide" : ""}`, title: c.text ? String(r[c.key]) : null }, c.show ? c.show(r) : r[c.key])))));
    if (rows.length === 0) this.body.append(el("tr", {}, el("td", { colspan: this.columns.length, class: "empty" }, this.rows.length ? "No row matches the filter." : this.empty)));
    this.note.textContent = this.total > this.rows.length ? `${this.rows.length} of ${this.total} shown` : `${rows.length} of ${this.rows.length}`;
    if (mine && focused !== undefined) [...this.body.children].find((tr) => tr.dataset.id === focused)?.focus();
  }

  sortBy(key) {
    if (this.sort === key) this.descending = !this.descending;
    else [this.sort, this.descending] = [key, true];
    this.draw();
  }

  /** move puts the focus on the next (1) or the previous (-1) row. */
  move(by) {
    const rows = [...this.body.querySelectorAll("tr[tabindex]")];
    const at = rows.indexOf(document.activeElement);
    rows[Math.min(rows.length - 1, Math.max(0, at + by))]?.focus();
  }
}
