import { el, bytes } from "./dom.js";
import { watch, setKey, Unauthorized } from "./api.js";
import { Drawer } from "./drawer.js";
import { PipelineView } from "./pipeline.js";
import { ActorsView } from "./actors.js";
import { RequestsView } from "./requests.js";
import { StepsView } from "./steps.js";
import { MemoryView } from "./memory.js";
import { DroppedView } from "./dropped.js";

const $ = (id) => document.getElementById(id);
const drawer = new Drawer($("drawer"));
const views = [
  ["pipeline", "Pipeline", new PipelineView(drawer)],
  ["actors", "Actors", new ActorsView(drawer)],
  ["requests", "Requests", new RequestsView(drawer)],
  ["steps", "Steps", new StepsView()],
  ["memory", "Memory", new MemoryView()],
  ["dropped", "Dropped", new DroppedView()],
];
let current = null;
let last = null;
let paused = false;

function show(name) {
  const [id, , view] = views.find(([v]) => v === name) ?? views[0];
  if (current === view) return;
  current = view;
  $("view").replaceChildren(view.node);
  for (const b of $("tabs").children) b.setAttribute("aria-selected", b.dataset.view === id);
  if (last) view.draw(last);
}

function route() {
  // #requests/<rid> opens one request's waterfall.
  const [view, ...rest] = location.hash.slice(1).split("/");
  show(view);
  const id = decodeURIComponent(rest.join("/"));
  if (id && view === "requests") drawer.request(id);
  if (id && view === "actors") drawer.actor(id);
}

$("tabs").append(...views.map(([id, title], i) => el("button", {
  type: "button", role: "tab", "data-view": id, title: `Key ${i + 1}`, onclick: () => { location.hash = id; },
}, title)));
window.addEventListener("hashchange", route);

function setPaused(on) {
  paused = on;
  $("pause").textContent = on ? "Go on" : "Pause";
  if (!on && last) current.draw(last);
}
$("pause").addEventListener("click", () => setPaused(!paused));
$("theme").addEventListener("click", () => {
  const dark = getComputedStyle(document.documentElement).getPropertyValue("--bg").trim() === "#12151a";
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("waybill-theme", document.documentElement.dataset.theme);
});
const theme = localStorage.getItem("waybill-theme");
if (theme) document.documentElement.dataset.theme = theme;

document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  if (e.key === "Escape") {
    if (!drawer.close()) document.activeElement?.blur();
    return;
  }
  if (e.target.matches("input")) return;
  if (e.key >= "1" && e.key <= String(views.length)) location.hash = views[e.key - 1][0];
  else if (e.key === "/" && current.table) e.preventDefault(); // some browsers search by it
  else if (e.key === " " && !e.target.matches("button")) { e.preventDefault(); setPaused(!paused); }
  else if (current.table && (e.key === "ArrowDown" || e.key === "ArrowUp")) { e.preventDefault(); current.table.move(e.key === "ArrowDown" ? 1 : -1); }
});

// With the key up, so that the slash itself goes nowhere.
document.addEventListener("keyup", (e) => {
  if (e.key === "/" && current.table && !e.target.matches("input")) current.table.input.focus();
});

function sample(s) {
  last = s;
  for (const [, , view] of views) view.keep?.(s);
  $("model").textContent = s.model;
  $("ready").textContent = s.ready ? "ready" : `not ready: ${s.not_ready}`;
  $("ready").className = `badge ${s.ready ? "good" : "bad"}`;
  const c = s.cost;
  $("cost").textContent = `watching costs ${c.ms_per_s.toFixed(2)} ms/s: ${c.samples_per_s.toFixed(1)} samples/s of ${bytes(c.bytes)}, ${c.viewers} of at most ${c.max_viewers} viewers`;
  if (!paused) current.draw(s);
}

function link(text, good) {
  $("link").textContent = text;
  $("link").className = `badge ${good ? "good" : "bad"}`;
}

function askKey() {
  return new Promise((done) => {
    $("key").addEventListener("close", () => { setKey($("key-value").value); $("key-value").value = ""; done(); }, { once: true });
    $("key").showModal();
  });
}

async function run() {
  for (let wait = 500; ;) {
    try {
      await watch(() => { link("live", true); wait = 500; }, sample);
      link("the server closed the connection", false);
    } catch (err) {
      if (err instanceof Unauthorized) { await askKey(); continue; }
      if (!(err instanceof TypeError && err.message.includes("fetch"))) console.error(err);
      link(err.message, false);
    }
    await new Promise((done) => setTimeout(done, wait));
    wait = Math.min(2 * wait, 8000);
  }
}

route();
run();
