// Talks to the server. The key, if there is one, stays in this tab.

const keyName = "waybill-key";

/** Unauthorized says that a key is needed. */
export class Unauthorized extends Error {}

/** setKey keeps the API key for this tab. */
export const setKey = (key) => sessionStorage.setItem(keyName, key);

async function request(path, options = {}) {
  const headers = { ...options.headers };
  const key = sessionStorage.getItem(keyName);
  if (key) headers.Authorization = `Bearer ${key}`;
  const r = await fetch(path, { ...options, headers, cache: "no-store" });
  if (r.status === 401) throw new Unauthorized("the API key is missing or wrong");
  if (!r.ok) {
    let message = `${r.status} ${r.statusText}`;
    try { message = (await r.json()).error.message; } catch { /* not ours: a proxy's page */ }
    throw new Error(message);
  }
  return r;
}

/** get returns a JSON answer of /console/api. */
export async function get(path) {
  return (await request(`/console/api/${path}`)).json();
}

/** act sends an action. */
export async function act(name, body) {
  const headers = { "Content-Type": "application/json", "X-Waybill-Console": "1" };
  return (await request(`/console/api/${name}`, { method: "POST", headers, body: JSON.stringify(body) })).json();
}

/**
 * watch calls onSample for every sample until the connection ends. It uses fetch:
 * an EventSource cannot send a key.
 */
export async function watch(onOpen, onSample) {
  const r = await request("/console/api/events");
  onOpen();
  const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (let rest = ""; ;) {
      const { value, done } = await reader.read();
      if (done) return;
      const events = (rest + value).split("\n\n");
      rest = events.pop();
      for (const e of events) if (e.startsWith("data: ")) onSample(JSON.parse(e.slice(6)));
    }
  } finally {
    reader.cancel().catch(() => {}); // the server must not sample for nobody
  }
}
