// Elements are made of text only: what comes from clients can never become markup.

/** el makes an element. attrs: attributes, or on… handlers; null leaves one out. */
export function el(tag, attrs = {}, ...children) {
  return fill(document.createElement(tag), attrs, children);
}

/** svg makes an SVG element. */
export function svg(tag, attrs = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attrs, children);
}

function fill(node, attrs, children) {
  for (const [k, v] of Object.entries(attrs)) {
    const aria = k.startsWith("aria-"); // these spell false out
    if (v === null || v === undefined || (v === false && !aria)) continue;
    if (k.startsWith("on")) node.addEventListener(k.slice(2), v);
    else node.setAttribute(k, v === true && !aria ? "" : String(v));
  }
  for (const c of children.flat(Infinity)) {
    if (c === null || c === undefined) continue;
    node.append(c.nodeType ? c : document.createTextNode(String(c)));
  }
  return node;
}

/** ms prints milliseconds with a fitting unit. */
export function ms(v) {
  if (v === null || v === undefined) return "–";
  if (v === 0) return "0";
  if (v < 1) return `${(v * 1000).toFixed(v < 0.01 ? 1 : 0)} µs`;
  if (v < 1000) return `${v.toFixed(v < 10 ? 2 : 1)} ms`;
  if (v < 120000) return `${(v / 1000).toFixed(1)} s`;
  return `${(v / 60000).toFixed(1)} min`;
}

/** us prints microseconds; 0 is the figure of nothing that happened. */
export const us = (v) => (v === 0 ? "–" : ms(v / 1000));

/** rate prints a number per second. */
export const rate = (v) => `${v >= 100 ? v.toFixed(0) : v.toFixed(1)}/s`;

/** percent prints a share of 1. */
export const percent = (v) => `${(100 * v).toFixed(v < 0.1 ? 1 : 0)} %`;

/** bytes prints a size. */
export function bytes(v) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (v < 1024 || unit === "GiB") return `${v < 10 && unit !== "B" ? v.toFixed(1) : v.toFixed(0)} ${unit}`;
    v /= 1024;
  }
}

/** count prints a whole number with separators. */
export const count = (v) => Math.round(v).toLocaleString("en-US");

/** clock prints Unix milliseconds as a time of day. */
export function clock(v) {
  const d = new Date(v);
  return `${d.toLocaleTimeString("en-GB")}.${String(d.getMilliseconds()).padStart(3, "0")}`;
}

/** pairs makes a definition list of [key, value]. */
export function pairs(list) {
  return el("dl", {}, list.map(([k, v]) => [el("dt", {}, k), el("dd", {}, v)]));
}

/** panel makes a titled box. */
export const panel = (title, ...children) => el("section", { class: "panel" }, title ? el("h2", {}, title) : null, children);
