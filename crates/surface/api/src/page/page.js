// Keeps the first page current. Everything that arrives becomes text or path data; nothing becomes markup.
"use strict";

const byId = (id) => document.getElementById(id);

function put(id, text) {
  const element = byId(id);
  if (element && element.textContent !== text) element.textContent = text;
}

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// --- live ---

let latest = null;

function show(snapshot) {
  latest = snapshot;
  for (const [id, text] of Object.entries(snapshot.texts)) put(id, text);
  for (const [id, state] of Object.entries(snapshot.states)) {
    const marked = byId(id);
    if (marked && marked.dataset.state !== state) marked.dataset.state = state;
  }
  const chart = snapshot.chart;
  const paths = {
    "chart-events": chart.events_line,
    "chart-events-area": chart.events_area,
    "chart-runs": chart.runs_line,
    "chart-runs-area": chart.runs_area,
  };
  for (const [id, path] of Object.entries(paths)) byId(id).setAttribute("d", path);
  put("chart-top", chart.top);
  put("chart-middle", chart.middle);
  showWaits(snapshot.waits);
  showNodes(snapshot.nodes);
  if (snapshot.runs_ended !== searchedAt) searchAgain();
}

function showWaits(waits) {
  byId("waits-none").hidden = waits.length > 0;
  const items = waits.map((wait) => {
    const item = element("li");
    item.append(element("b", wait.name), element("span", wait.reason, "reason"), element("p", wait.detail));
    return item;
  });
  byId("waits").replaceChildren(...items);
}

function showNodes(nodes) {
  const items = nodes.map((node) => {
    const item = element("li");
    const about = `${node.state}, ${node.shards}`;
    item.append(element("b", node.name), element("span", node.role, "reason"), element("p", about));
    return item;
  });
  byId("nodes")?.replaceChildren(...items);
}

const live = new EventSource("/v1/live");

function connected(text, state) {
  put("connection", text);
  byId("connection").dataset.state = state;
}

live.onopen = () => connected("live", "ok");
live.onmessage = (message) => show(JSON.parse(message.data));
live.onerror = () => connected("not connected, retrying", "bad");
addEventListener("pagehide", () => live.close());

// --- the chart's values under the pointer ---

const plot = byId("chart");
const SECONDS = 300;

plot.addEventListener("pointermove", (pointer) => {
  if (!latest) return;
  const box = plot.getBoundingClientRect();
  const ago = Math.round((1 - (pointer.clientX - box.left) / box.width) * (SECONDS - 1));
  const { events, runs } = latest.chart;
  const at = events.length - 1 - ago;
  if (at < 0 || at >= events.length) return;
  put("chart-readout", `${ago} s ago: ${events[at]} events/s, ${runs[at]} runs/s`);
  const x = (600 * (1 - ago / (SECONDS - 1))).toFixed(1);
  byId("chart-cursor").setAttribute("d", `M${x} 0V120`);
});

plot.addEventListener("pointerleave", () => {
  put("chart-readout", "last 5 minutes");
  byId("chart-cursor").setAttribute("d", "");
});

// --- search as you type, and again when runs have ended ---

const FIELDS_SHOWN = 8;
const VALUE_CHARACTERS_MAX = 300;
let searchedAt = 0;
let underWay = null;
let pause = 0;

function shown(value) {
  const plain = (part) => (typeof part === "string" ? part : JSON.stringify(part));
  const text = Array.isArray(value) ? value.map(plain).join(", ") : plain(value);
  const characters = [...text];
  return characters.length > VALUE_CHARACTERS_MAX
    ? characters.slice(0, VALUE_CHARACTERS_MAX - 1).join("") + "…"
    : text;
}

function hit(found) {
  const head = element("div", undefined, "hit-head");
  const version = element("code", found.version);
  version.title = "Version";
  head.append(element("b", found.key), element("span", found.entity, "muted"), version);
  const fields = element("dl");
  const held = found.document;
  const whole = held !== null && typeof held === "object" && !Array.isArray(held);
  const entries = whole ? Object.entries(held).slice(0, FIELDS_SHOWN) : [["document", held]];
  for (const [name, value] of entries) fields.append(element("dt", name), element("dd", shown(value)));
  const item = element("li");
  item.append(head, fields);
  return item;
}

async function search() {
  const query = byId("search").value;
  if (underWay) underWay.abort();
  if (query.trim() === "") {
    byId("results").replaceChildren();
    put("results-note", "");
    return;
  }
  const mine = new AbortController();
  underWay = mine;
  searchedAt = latest ? latest.runs_ended : 0;
  const parameters = new URLSearchParams({ sink: byId("sink").value, q: query, limit: "20" });
  try {
    const answer = await fetch(`/v1/search?${parameters}`, { signal: mine.signal });
    const body = await answer.json();
    if (!answer.ok) {
      put("results-note", body.error.message);
      return;
    }
    byId("results").replaceChildren(...body.hits.map(hit));
    put("results-note", body.hits.length === 1 ? "1 hit" : `${body.hits.length} hits`);
  } catch (failure) {
    if (failure.name !== "AbortError") put("results-note", "the node does not answer");
  } finally {
    if (underWay === mine) underWay = null;
  }
}

function searchAgain() {
  if (!underWay && byId("search").value.trim() !== "") search();
}

byId("search").addEventListener("input", () => {
  clearTimeout(pause);
  pause = setTimeout(search, 120);
});
byId("sink").addEventListener("change", search);
byId("search-form").addEventListener("submit", (submit) => {
  submit.preventDefault();
  clearTimeout(pause);
  search();
});
