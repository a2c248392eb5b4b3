// The console: shows the states that the server streams.  Values become text nodes, never HTML.
"use strict";

const token = { text: sessionStorage.getItem("shale-token") || "" };
const byId = (id) => document.getElementById(id);
const content = (id) => document.querySelector(`#${id} .content`);

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = String(text);
  if (className) made.className = className;
  return made;
}

function table(head, rows) {
  const made = element("table");
  if (head) {
    const line = made.createTHead().insertRow();
    for (const name of head) {
      const cell = element("th", name);
      cell.scope = "col";
      line.append(cell);
    }
  }
  const body = made.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    row.forEach((value, column) => {
      const cell = !head && column === 0 ? element("th") : element("td");
      if (!head && column === 0) cell.scope = "row";
      cell.append(value instanceof Node ? value : document.createTextNode(value ?? "–"));
      line.append(cell);
    });
  }
  return made;
}

function bytes(count) {
  if (count === null || count === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) { count /= 1024; unit += 1; }
  return `${count >= 100 || unit === 0 ? Math.round(count) : count.toFixed(1)} ${units[unit]}`;
}

const number = (value) => (value === null || value === undefined ? "–" : Number(value).toLocaleString("en"));

// Bytes as text, or in hexadecimal if they are not text; values may have several lines.
function text64(encoded, binary = /[\u0000-\u001f\ufffd]/) {
  const raw = Uint8Array.from(atob(encoded), (letter) => letter.charCodeAt(0));
  const decoded = new TextDecoder().decode(raw);
  return binary.test(decoded) ? [...raw].map((each) => each.toString(16).padStart(2, "0")).join(" ") : decoded;
}

// --- panels ---

const SVG = "http://www.w3.org/2000/svg";

function shape(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

const GAP = 2, NARROWEST = 3;

// The width of a picture, where its boxes begin, and the room for them: names are before them, sizes after them.
function frame() {
  const width = Math.max(280, Math.min(900, content("lsm").clientWidth));
  const left = width < 500 ? 100 : 150;
  return { width, left, room: width - left - (width < 500 ? 70 : 130) };
}

// How many SSTs fit into one line.
const l0Room = () => Math.floor(frame().room / (NARROWEST + GAP));

// One line per level: the L0 SSTs side by side, then each sorted run; widths follow the logarithm of the size.
function picture(tree) {
  const { width, left, room } = frame(), step = 24;
  const levels = [];
  if (tree.l0_count) levels.push({ name: `L0: ${number(tree.l0_count)} SSTs`, kind: "l0", parts: tree.l0.slice(0, l0Room()), bytes: tree.l0_bytes });
  for (const run of tree.runs) levels.push({ name: `run ${run.id}: ${number(run.ssts)} SSTs`, kind: "run", parts: [run], bytes: run.bytes });
  const scale = (size) => Math.log2(Math.max(2, size / 1024 + 2));
  const sums = levels.map((level) => level.parts.reduce((sum, part) => sum + scale(part.bytes), 0));
  const most = Math.max(1, ...sums);
  const spare = room - Math.max(0, ...levels.map((level) => level.parts.length)) * (NARROWEST + GAP);
  const svg = shape("svg", { viewBox: `0 0 ${width} ${Math.max(1, levels.length) * step + 4}`, role: "img" });
  svg.append(shape("title", {}, levels.map((level) => level.name).join(", ") || "empty"));
  if (!levels.length) svg.append(shape("text", { x: 0, y: 16, class: "quiet" }, "no SSTs yet"));
  levels.forEach((level, row) => {
    const y = row * step + 2;
    let x = left;
    svg.append(shape("text", { x: 0, y: y + 14 }, level.name));
    for (const part of level.parts) {
      const wide = NARROWEST + (scale(part.bytes) / most) * spare;
      const box = shape("rect", { x, y, width: wide, height: step - 6, rx: 2, class: level.kind });
      box.append(shape("title", {}, `${part.id}: ${bytes(part.bytes)}`));
      svg.append(box);
      x += wide + GAP;
    }
    svg.append(shape("text", { x: x + 6, y: y + 14, class: "quiet" }, bytes(level.bytes)));
  });
  return svg;
}

// A line about the items that were cut from a list, if there are any.
function more(count, what) {
  return count > 0 ? element("p", `and ${number(count)} more ${what}`, "quiet") : [];
}

const show = {
  lsm(state) {
    const database = state.database;
    const parts = [element("p", `${number(database.ssts)} SSTs, ${bytes(database.bytes)}, manifest ${database.manifest_id}`, "quiet")];
    for (const tree of database.trees) {
      if (tree.segment_b64) parts.push(element("h3", `segment ${text64(tree.segment_b64)}`));
      if (!tree.segment_b64 && database.tree_count > 1 && !tree.l0_count && !tree.run_count) continue;
      parts.push(picture(tree));
      const drawn = Math.min(tree.l0.length, l0Room());
      parts.push(...[].concat(more(tree.l0_count - drawn, "L0 SSTs that are not drawn")));
      parts.push(...[].concat(more(tree.run_count - tree.runs.length, `sorted runs; all have ${bytes(tree.run_bytes)}`)));
    }
    return parts.concat(more(database.tree_count - database.trees.length, "segments"));
  },
  flow(state) {
    const { process, counters, database } = state;
    const limit = counters.slatedb_db_unflushed_limit_bytes;
    const waiting = process.unflushed_bytes ?? counters.slatedb_db_unflushed_bytes;
    return [table(null, [
      ["replay after WAL file", number(database.wal.replay_after_id)],
      ["next WAL file in the manifest", number(database.wal.next_id)],
      ["last sequence number in L0", number(database.wal.last_l0_seq)],
      ["last, durable", `${number(process.last_seq)}, ${number(process.durable_seq)}`],
      ["not flushed", limit ? `${bytes(waiting)} of ${bytes(limit)}` : bytes(waiting)],
      ["WAL flushes", `${number(counters.slatedb_wal_flushes)}, ${bytes(counters.slatedb_wal_flush_bytes)}`],
      ["L0 flushes", number(counters.slatedb_memtable_flush_l0_flushes)],
      ["stalls of L0, back-pressure", `${number(counters.slatedb_db_l0_stalls ?? 0)}, ${number(counters.slatedb_db_backpressure ?? 0)}`],
    ])];
  },
  epochs(state) {
    const database = state.database;
    return [table(null, [
      ["writer epoch", number(database.writer_epoch)],
      ["writer", `${database.writer}${database.writer_host ? ` on ${database.writer_host}` : ""}`],
      ["compactor epoch", number(database.compactor_epoch)],
      ["fenced", number(state.counters.slatedb_fenced ?? 0)],
      ["boundary of manifests", number(database.boundaries.manifest)],
      ["boundary of compactions", number(database.boundaries.compactions)],
      ["parents", database.parents.join(", ") || "none"],
    ])];
  },
  compactions(state) {
    const jobs = state.process.jobs || {};
    const rows = state.database.compactions.map((each) => {
      const ratio = jobs[each.id] ?? (each.status === "running" && each.input_bytes ? Math.min(1, each.output_bytes / each.input_bytes) : null);
      let progress = each.status;
      if (ratio !== null) {
        progress = element("span");
        const bar = element("progress");
        bar.value = ratio;
        bar.setAttribute("aria-label", `progress of ${each.id}`);
        progress.append(bar, ` ${Math.round(ratio * 100)} %`);
      }
      return [each.id, progress, `${each.l0} L0, runs ${each.runs.join(" ") || "–"}`, bytes(each.output_bytes)];
    });
    const list = rows.length ? table(["id", "status", "inputs", "written"], rows) : element("p", "none yet", "quiet");
    return [list].concat(more(state.database.compaction_count - rows.length, "compactions"));
  },
  checkpoints(state) {
    const rows = state.database.checkpoints.map((each) => [
      (each.name ?? each.id).replace(/^(writer:\d+)\?.*/s, "$1"), number(each.manifest_id), each.expire_time?.replace(/\.\d+Z/, "Z") ?? "no expiry",
      each.pinned_ssts === null ? "…" : `${number(each.pinned_ssts)} SSTs, ${bytes(each.pinned_bytes)}`,
    ]);
    const list = rows.length ? table(["name", "manifest", "expires", "pins alone"], rows) : element("p", "none", "quiet");
    return [list].concat(more(state.database.checkpoint_count - rows.length, "checkpoints"));
  },
  counters(state) {
    const counters = state.counters;
    const hit = counters["slatedb_db_cache_accesses.hit"] ?? 0, miss = counters["slatedb_db_cache_accesses.miss"] ?? 0;
    const rows = [["cache hits", hit + miss ? `${number(hit)} of ${number(hit + miss)} (${Math.round(100 * hit / (hit + miss))} %)` : "–"]];
    for (const [name, value] of Object.entries(counters)) {
      if (/requests|errors|deleted|write_ops/.test(name)) rows.push([name.replace(/^slatedb_/, ""), number(value)]);
    }
    return [table(null, rows)];
  },
  process(state) {
    const rows = Object.entries(state.process).map(([name, value]) => [name, typeof value === "object" ? JSON.stringify(value) : value]);
    return [table(null, rows)];
  },
  events(state) {
    const list = element("ol");
    for (const line of state.events) {
      let event = { event: line };
      try { event = JSON.parse(line); } catch { /* a line that was cut */ }
      const { ts, level, event: name, version, db, component, ...rest } = event;
      const bad = level === "error" || level === "warning" || level === "critical";
      const item = element("li");
      item.append(element("span", `${(ts || "").slice(11, 19)} `, "quiet"), element("b", name, bad ? "bad" : ""));
      item.append(` ${Object.entries(rest).map(([key, value]) => `${key}=${typeof value === "object" ? JSON.stringify(value) : value}`).join(" ")}`);
      list.append(item);
    }
    return [list];
  },
};

let latest = null;

function render(state) {
  latest = state;
  for (const [id, panel] of Object.entries(show)) {
    if (!state.database.trees && !["process", "events", "counters"].includes(id)) continue;
    const place = content(id);
    const top = place.firstElementChild?.scrollTop ?? 0;
    place.replaceChildren(...panel(state));
    if (top) place.firstElementChild.scrollTop = top;
  }
  problem(state.problem);
  const read = state.database_ms;
  age(read === null ? "no state yet" : `as of ${new Date(read).toLocaleTimeString()}`, state.problem ? "bad" : "good");
  document.documentElement.dataset.states = String(Number(document.documentElement.dataset.states || 0) + 1);
}

function age(text, className) {
  byId("age").textContent = text;
  byId("age").className = className;
}

function problem(text) {
  byId("problem").hidden = !text;
  byId("problem").textContent = text || "";
}

// --- requests ---

function headers(more) {
  return token.text ? { Authorization: `Bearer ${token.text}`, ...more } : { ...more };
}

async function failure(answer) {
  try { return (await answer.json()).detail; } catch { return `${answer.status} ${answer.statusText}`; }
}

const SILENCE_MS = 20000;
let streaming = null;

// Follows the events until another call replaces it, or the page is hidden: a browser has few connections to a host.
async function stream() {
  streaming?.abort();
  const mine = streaming = new AbortController();
  let pause = 1000;
  while (!mine.signal.aborted) {
    const request = new AbortController();
    mine.signal.addEventListener("abort", () => request.abort());
    const heard = watchSilence(request);
    try {
      const answer = await fetch("console/events", { headers: headers(), signal: request.signal });
      if (!answer.ok) {
        problem(await failure(answer));
        age("not connected", "bad");
        if (answer.status === 401 || answer.status === 403) return;
      } else {
        await readEvents(answer.body.getReader(), heard);
        pause = 1000;
      }
    } catch (error) {
      if (mine.signal.aborted) return;
      age("connection lost", "bad");
    } finally {
      heard.stop();
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(pause * 2, 15000);
  }
}

// Aborts a request of which nothing is heard: a host that is gone does not close its connections.
function watchSilence(request) {
  let timer = 0;
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(() => request.abort(), SILENCE_MS);
  };
  heard.stop = () => clearTimeout(timer);
  heard();
  return heard;
}

function followWhileVisible() {
  if (!document.hidden) {
    stream();
    return;
  }
  streaming?.abort();
  age("paused", "");
}

async function readEvents(reader, heard) {
  const decoder = new TextDecoder();
  let waiting = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    heard();
    waiting += decoder.decode(value, { stream: true });
    const events = waiting.split("\n\n");
    waiting = events.pop();
    const last = events.filter((event) => event.startsWith("data: ")).pop();
    if (last) render(JSON.parse(last.slice(6)));
  }
}

// Requests JSON; without an answer it says in ``place`` why, and returns null.
async function request(path, place, options) {
  try {
    const answer = await fetch(path, { ...options, headers: headers(options?.headers) });
    if (answer.ok) return await answer.json();
    place.replaceChildren(element("p", await failure(answer), "bad"));
  } catch {
    place.replaceChildren(element("p", "no connection", "bad"));
  }
  return null;
}

async function lookUp(event) {
  event.preventDefault();
  const body = JSON.stringify({ key: byId("key").value, format: byId("key-format").value });
  const place = byId("lookup-result");
  const row = await request("console/lookup", place, { method: "POST", headers: { "Content-Type": "application/json" }, body });
  if (!row) return;
  const when = (ms) => (ms === null ? "–" : new Date(ms).toISOString());
  place.replaceChildren(
    table(null, [["sequence number", number(row.seq)], ["written", when(row.create_ts)], ["expires", when(row.expire_ts)], ["size", bytes(row.value_bytes)]]),
    element("pre", text64(row.value_b64, /[\u0000-\u0008\u000b-\u001f\ufffd]/)),
  );
}

async function plan() {
  const place = byId("plan-result");
  place.replaceChildren(element("p", "listing …", "quiet"));
  const found = await request("console/candidates", place);
  if (!found) return;
  place.replaceChildren(element("p", `${number(found.count)} objects, ${bytes(found.size)}`, "quiet"));
  if (found.objects.length) place.append(table(["object", "size", "why"], found.objects.map((each) => [each.key, bytes(each.size), each.why])));
  place.append(...[].concat(more(found.count - found.objects.length, "objects")));
}

const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  token.text = given;
  sessionStorage.setItem("shale-token", given);
  history.replaceState(null, "", location.pathname);
}
byId("token").value = token.text;
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  token.text = byId("token").value.trim();
  sessionStorage.setItem("shale-token", token.text);
  stream();
});
byId("lookup-form")?.addEventListener("submit", lookUp);
byId("plan").addEventListener("click", plan);
document.addEventListener("visibilitychange", followWhileVisible);
let drawnWidth = 0;
new ResizeObserver(() => requestAnimationFrame(() => {
  const width = content("lsm").clientWidth;
  if (latest?.database.trees && width !== drawnWidth) content("lsm").replaceChildren(...show.lsm(latest));
  drawnWidth = width;
})).observe(content("lsm"));
followWhileVisible();
