"use strict";
// The page of `qosm ui`. Text comes from pods' owners: it is set as text, never as markup.

const REFRESH_MILLIS = 2000;
const MUCH_THROTTLED = 10;
const token = new URLSearchParams(location.search).get("token");

const byId = (id) => document.getElementById(id);
const state = { overview: null, chosen: null, at: null, charts: [], shown: null, marks: [] };

async function ask(path) {
  const separator = path.includes("?") ? "&" : "?";
  const answer = await fetch(token ? `${path}${separator}token=${encodeURIComponent(token)}` : path);
  if (!answer.ok) throw new Error(`${answer.status}: ${(await answer.text()).trim()}`);
  return answer.json();
}

function element(kind, text, kindOfCell) {
  const made = document.createElement(kind);
  if (text !== undefined && text !== null) made.textContent = text;
  if (kindOfCell) made.className = kindOfCell;
  return made;
}

const number = (value, digits) => (value === null || value === undefined ? "-" : value.toFixed(digits));
const percent = (value) => (value === null || value === undefined ? "-" : `${value.toFixed(0)} %`);
function bytes(value) {
  if (value === null || value === undefined) return "-";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
}
function quota(of) {
  if (!of) return "-";
  const cpus = (value) => (value === null ? "none" : value.toFixed(2));
  return of.cpus === of.baselineCpus ? cpus(of.cpus) : `${cpus(of.cpus)} (${cpus(of.baselineCpus)})`;
}
const twoDigits = (count) => String(count).padStart(2, "0");
function elapsed(millis) {
  const seconds = Math.floor(millis / 1000);
  return [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60].map(twoDigits).join(":");
}
// In UTC, as the agent's log and `explain` have it; a recording without a date has the time since it began.
const day = (millis) => new Date(millis).toISOString().slice(0, 10);
const clock = (millis) => (state.overview.hasDate ? new Date(millis).toISOString().slice(11, 19) : elapsed(millis));
const moment = (millis) => (state.overview.hasDate ? `${day(millis)}T${clock(millis)}Z` : elapsed(millis));
// Below a chart the day stands once, and where another begins.
function clocks(splits) {
  const millis = splits.map((second) => second * 1000);
  const isNewDay = (place) => state.overview.hasDate && (place === 0 || day(millis[place]) !== day(millis[place - 1]));
  return millis.map((each, place) => (isNewDay(place) ? `${clock(each)}\n${day(each)}` : clock(each)));
}
function held(row) {
  const policies = new Map();
  for (const one of row.held) policies.set(one.policy, (policies.get(one.policy) || 0) + 1);
  const parts = [...policies].map(([policy, knobs]) => `${policy} ${knobs}`);
  if (row.paused) parts.unshift("paused");
  if (row.refused.length > 0) parts.push(`${row.refused.length} refused`);
  const differing = (row.shadowed ?? []).filter((one) => one.kind !== "agrees").length;
  if (differing > 0) parts.push(`shadow: ${differing} different`);
  return parts.join("\n");
}
const waits = (row) => (row.pressure ? Math.max(row.pressure.cpuPercent, row.pressure.memoryPercent, row.pressure.ioPercent) : -1);

function drawList() {
  const wanted = byId("find").value.trim();
  const order = byId("order").value;
  const value = (row) => (order === "waits" ? waits(row) : row[order] ?? -1);
  const rows = state.overview.containers.filter((row) => row.name.includes(wanted));
  rows.sort((one, other) => (order === "name" ? 0 : value(other) - value(one)) || one.name.localeCompare(other.name));
  const lines = rows.map((row) => {
    const line = element("tr");
    line.setAttribute("aria-selected", String(row.name === state.chosen));
    if (!row.isHere) line.classList.add("gone");
    if ((row.throttledPercent ?? 0) >= MUCH_THROTTLED) line.classList.add("throttled");
    const choose = element("button", row.name);
    choose.type = "button";
    choose.addEventListener("click", () => choosing(row.name, null));
    const name = element("td", undefined, "name");
    name.append(choose);
    line.append(
      name,
      element("td", row.class),
      element("td", number(row.cpus, 2), "number"),
      element("td", quota(row.quota), "number"),
      element("td", percent(row.throttledPercent), "number throttled"),
      element("td", row.memoryLimitBytes ? `${bytes(row.memoryBytes)} of ${bytes(row.memoryLimitBytes)}` : bytes(row.memoryBytes), "number"),
      element("td", held(row), "held"),
      element("td", row.why, row.remarks.length > 0 ? "not-done" : undefined),
    );
    return line;
  });
  // The button that has the focus keeps it.
  const focused = document.activeElement && byId("rows").contains(document.activeElement) ? document.activeElement.textContent : null;
  byId("rows").replaceChildren(...lines);
  if (focused !== null) [...byId("rows").querySelectorAll("button")].find((one) => one.textContent === focused)?.focus();
  byId("none").hidden = lines.length > 0;
}

function drawNode() {
  const { times, hasDate, cpus, busyCpus, memoryBytes, memoryUsedMib, containers } = state.overview;
  const last = times.length - 1;
  if (last < 0) { byId("node").textContent = "waiting for the second look"; return; }
  const memory = memoryUsedMib[last] === null ? "" : `memory ${bytes(memoryUsedMib[last] * 1048576)} of ${bytes(memoryBytes)}, `;
  const here = containers.filter((row) => row.isHere).length;
  const throttled = containers.filter((row) => row.isHere && (row.throttledPercent ?? 0) >= MUCH_THROTTLED).length;
  byId("node").textContent =
    `${hasDate ? "" : "after "}${moment(times[last])}: CPUs ${number(busyCpus[last], 1)} of ${cpus}, ` +
    `${memory}${here} container${here === 1 ? "" : "s"}, ${throttled} throttled`;
}

function marksPlugin() {
  const colour = { holds: "#3b82f6", "gives up": "#6b7280", "not done": "#d97706" };
  return {
    hooks: {
      drawClear: (plot) => {
        const { ctx } = plot;
        const { left, top, width, height } = plot.bbox;
        ctx.save();
        ctx.setLineDash([3, 3]);
        for (const mark of state.marks) {
          const place = plot.valToPos(mark.time / 1000, "x", true);
          if (place < left || place > left + width) continue;
          ctx.strokeStyle = colour[mark.kind];
          ctx.beginPath();
          ctx.moveTo(place, top);
          ctx.lineTo(place, top + height);
          ctx.stroke();
        }
        if (state.at !== null) {
          const place = plot.valToPos(state.at / 1000, "x", true);
          ctx.setLineDash([]);
          ctx.lineWidth = 2;
          ctx.strokeStyle = "#ef4444";
          ctx.beginPath();
          ctx.moveTo(place, top);
          ctx.lineTo(place, top + height);
          ctx.stroke();
        }
        ctx.restore();
      },
    },
  };
}

const CHARTS = [
  { title: "CPUs", digits: 2, lines: [["used", "cpus", "#3b82f6"], ["quota", "quotaCpus", "#16a34a"], ["quota before qosm", "baselineCpus", "#9ca3af"]] },
  { title: "throttled, % of periods", digits: 0, top: 100, ofQuota: true, lines: [["throttled", "throttledPercent", "#d97706"]] },
  { title: "memory, MiB", digits: 0, lines: [["in use", "memoryMib", "#8b5cf6"]], bounds: true },
  { title: "waiting, % of time", digits: 0, lines: [["for a CPU", "waitsCpuPercent", "#3b82f6"], ["for memory", "waitsMemoryPercent", "#8b5cf6"], ["for I/O", "waitsIoPercent", "#6b7280"]] },
];

// A canvas knows no variables of style sheets, and the scheme may change while the page is open.
const textColour = () => getComputedStyle(document.body).color;
const lineColour = () => getComputedStyle(byId("charts")).borderTopColor;
// A line shows what has a neighbour; a value between two gaps is a point. It is asked at each draw: moments come after a plot was made.
function lonePlaces(plot, series) {
  const isKnown = (value) => value !== null && value !== undefined;
  const values = plot.data[series];
  const places = [...values.keys()].filter((at) => isKnown(values[at]) && !isKnown(values[at - 1]) && !isKnown(values[at + 1]));
  return places.length > 0 ? places : null;
}
// A legend says where the pointer is; without one, how it is now.
const latest = (digits) => (plot, value, series, at) => number(at === null ? plot.data[series].at(-1) : value, digits);
const latestTime = (plot, value) => moment((value ?? plot.data[0].at(-1) ?? 0) * 1000);

function drawContainer(of) {
  byId("container").hidden = false;
  state.marks = of.marks;
  byId("container-title").textContent = state.chosen;
  const row = of.now;
  const bounds = [["min", row.memoryMinBytes], ["low", row.memoryLowBytes], ["high", row.memoryHighBytes], ["limit", row.memoryLimitBytes]];
  const said = bounds.filter(([, value]) => value !== null && value !== undefined).map(([name, value]) => `${name} ${bytes(value)}`);
  byId("summary").textContent = `class ${row.class}, quota ${quota(row.quota)} CPUs` + (said.length > 0 ? `, memory ${said.join(", ")}` : "") +
    (row.localPercent === null || row.localPercent === undefined ? "" : `, ${row.localPercent} % of its pages local`);
  const seconds = of.times.map((millis) => millis / 1000);
  const isKnown = (chart) => chart.lines.some(([, key]) => of[key].some((value) => value !== null));
  const charts = CHARTS.filter(isKnown);
  // Nothing but a quota throttles: without one no number is missing.
  const hasNoQuota = row.quota && row.quota.cpus === null && of.quotaCpus.every((value) => value === null);
  const isNeedless = (chart) => chart.ofQuota && hasNoQuota;
  const absent = CHARTS.filter((chart) => !isKnown(chart));
  const unknown = absent.filter((chart) => !isNeedless(chart)).map((chart) => chart.title.split(",")[0]);
  const whyAbsent = [];
  if (absent.some(isNeedless)) whyAbsent.push("Not throttled: no quota.");
  if (unknown.length > 0) whyAbsent.push(`Not known: ${unknown.join("; ")}.`);
  byId("missing").textContent = whyAbsent.join(" ");
  byId("missing").hidden = whyAbsent.length === 0;
  const line = { stroke: lineColour, width: 1 };
  const axis = { stroke: textColour, grid: line, ticks: line };
  const axisOfTime = { ...axis, size: state.overview.hasDate ? 48 : 30, space: 80, values: (_, splits) => clocks(splits) };
  const points = { show: false, filter: lonePlaces };
  const plots = charts.map((chart) => {
    const lines = chart.lines.map(([label, , stroke]) => ({ label, stroke, width: 1.5, spanGaps: false, points, value: latest(chart.digits) }));
    const data = [seconds, ...chart.lines.map(([, key]) => of[key])];
    if (chart.bounds) {
      for (const [name, value] of bounds.filter(([, value]) => value)) {
        lines.push({ label: name, stroke: "#9ca3af", width: 1, dash: [6, 4], points, value: latest(0) });
        data.push(seconds.map(() => value / 1048576));
      }
    }
    return { chart, options: {
      title: chart.title, width: Math.max(320, byId("charts").clientWidth || 800), height: 180,
      cursor: { sync: { key: "qosm" } },
      scales: { y: { range: (_, __, most) => [0, chart.top ?? Math.max(most * 1.05, 0.01)] } },
      axes: [axisOfTime, axis], series: [{ label: "at", value: latestTime }, ...lines], plugins: [marksPlugin()],
    }, data };
  });
  const shown = [state.chosen, ...plots.map(({ options }) => [options.title, ...options.series.map((one) => one.label)])].join("\n");
  if (state.shown === shown) {
    plots.forEach((plot, place) => state.charts[place].setData(plot.data));
  } else {
    state.charts.forEach((plot) => plot.destroy());
    byId("charts").replaceChildren();
    state.charts = plots.map((plot) => new uPlot(plot.options, plot.data, byId("charts")));
    state.shown = shown;
  }
  drawMarks(of);
  drawCompared(of.compared);
}

// Whose a knob is, where it is not the container's own.
const knobOf = ({ level, knob }) => (level === "container" ? knob : `the ${level}'s ${knob}`);
const shortDigest = (digest) => digest.slice(0, 19);
const versionOf = ({ module, digest }) => (module ? `${module}\n${shortDigest(digest)}` : "-");

function drawMarks(of) {
  const focused = byId("marks").contains(document.activeElement) ? document.activeElement.dataset.mark : null;
  const lines = [...of.marks].reverse().slice(0, 500).map((mark) => {
    const line = element("tr");
    line.setAttribute("aria-selected", String(mark.time === state.at));
    const when = element("button", moment(mark.time));
    when.type = "button";
    when.dataset.mark = [mark.time, mark.kind, mark.level, mark.knob].join(" ");
    when.addEventListener("click", () => choosing(state.chosen, mark.time));
    const cell = element("td", undefined, "name");
    cell.append(when);
    const knob = knobOf(mark);
    const origin = of.origins[mark.origin];
    const what = mark.kind === "not done" ? `${knob}: not done` : mark.kind === "holds" ? `${knob} = ${mark.value}` : `${knob} back to ${mark.value}`;
    line.append(
      cell, element("td", what, mark.kind === "not done" ? "not-done" : undefined), element("td", origin.policy, "name"),
      element("td", versionOf(origin), "module"), element("td", origin.configuredBy.join(", ") || "-"), element("td", mark.reason),
    );
    return line;
  });
  byId("marks").replaceChildren(...lines);
  if (focused !== null) [...byId("marks").querySelectorAll("button")].find((one) => one.dataset.mark === focused)?.focus();
  // In full once, also of modules that have been replaced since.
  const digests = new Set(of.origins.filter(({ module }) => module).map(({ module, digest }) => `${module}: ${digest}`));
  byId("digests").textContent = [...digests].join("\n");
  byId("digests").hidden = digests.size === 0;
}

const WORDS = { agrees: "same", differs: "different", "only-active": "only the active one", "only-shadow": "only the shadow" };

// What a shadow wants of the chosen container, beside what is in force.
function drawCompared(compared) {
  const shadows = state.overview.policies.filter((policy) => policy.shadow);
  byId("compared").hidden = shadows.length === 0 && compared.length === 0;
  const value = (wanted, none) => (wanted === null ? none : String(wanted));
  byId("compared-rows").replaceChildren(...compared.map((row) => {
    const line = element("tr");
    const isDifferent = row.kind !== null && row.kind !== "agrees";
    line.append(
      element("td", row.policy, "name"), element("td", knobOf(row)), element("td", value(row.inForce, row.kind === null ? "-" : "not held")),
      element("td", value(row.active, "-")), element("td", value(row.wanted, "-")),
      element("td", row.kind === null ? "not asked for any more" : WORDS[row.kind] ?? row.kind, isDifferent ? "not-done" : undefined),
      element("td", `${row.agreed} / ${row.differed}`, "number"), element("td", row.reason ?? ""),
    );
    return line;
  }));
  const isCompared = shadows.some(({ shadow }) => shadow.agreeing !== undefined);
  byId("compared-table").hidden = compared.length === 0;
  const none = isCompared ? "Neither a shadow nor what it is compared with asks for anything here." : "Nothing is compared: no shadow runs.";
  byId("compared-none").textContent = compared.length > 0 ? "" : none;
  byId("compared-none").hidden = compared.length > 0;
}

// The node's shadows. That nothing is compared must not look as if nothing differed.
function drawShadows(reported, known, isRecording) {
  const byName = new Map(known.map((policy) => [policy.policy, policy]));
  const shadows = reported.filter((policy) => policy.mode === "shadow");
  const lines = shadows.map((policy) => {
    const line = element("tr");
    const { module, digest, shadow } = byName.get(policy.policy) ?? { module: policy.module, digest: policy.digest, shadow: null };
    const active = byName.get(shadow?.of);
    const isCompared = shadow !== null && shadow.agreeing !== undefined;
    const why = known.length === 0 ? "not known: this agent does not say it" : `not compared: ${policy.health}`;
    line.append(
      element("td", policy.policy, "name"), element("td", versionOf({ module, digest }), "module"),
      element("td", shadow === null ? "-" : shadow.of ?? "whatever is in force"), element("td", active ? versionOf(active) : "-", "module"),
      element("td", isCompared ? String(shadow.agreeing) : why, isCompared ? "number" : "not-done"),
      element("td", isCompared ? String(shadow.differing) : "-", isCompared && shadow.differing > 0 ? "number not-done" : "number"),
      element("td", shadow === null ? "-" : String(shadow.ticks), "number"),
      element("td", shadow === null ? "-" : String(shadow.differingTicks), "number"),
    );
    return line;
  });
  byId("shadows").replaceChildren(...lines);
  byId("shadows-table").hidden = lines.length === 0;
  const none = isRecording
    ? "This recording has no shadow, so nothing is compared: qosm record leaves out the shadows of its node."
    : "No policy has a shadow here, so nothing is compared.";
  byId("shadows-none").textContent = lines.length > 0 ? "" : none;
  byId("shadows-none").hidden = lines.length > 0;
}

function drawPolicies(policies) {
  byId("policies").replaceChildren(...policies.map((policy) => {
    const line = element("tr");
    const health = policy.error ? `${policy.health}: ${policy.error}` : policy.health;
    line.append(
      element("td", policy.policy, "name"), element("td", policy.mode), element("td", health, policy.error ? "not-done" : undefined),
      element("td", policy.module), element("td", shortDigest(policy.digest)), element("td", String(policy.leases), "number"),
      element("td", String(policy.evaluations), "number"), element("td", String(policy.failures), "number"),
    );
    return line;
  }));
}

function choosing(name, at) {
  state.chosen = name;
  state.at = at;
  const hash = new URLSearchParams();
  hash.set("container", name);
  if (at !== null) hash.set("time", String(at));
  history.replaceState(null, "", `${location.search}#${hash}`);
  refresh();
}

function fromHash() {
  const hash = new URLSearchParams(location.hash.slice(1));
  state.chosen = hash.get("container");
  state.at = hash.has("time") ? Number(hash.get("time")) : null;
}

let asking = false;
let isStale = false;
async function refresh() {
  if (asking) { isStale = true; return; }
  asking = true;
  try {
    const overview = await ask("api/overview");
    state.overview = overview.node;
    byId("title").textContent = overview.title;
    document.title = `${overview.title} - qosm`;
    drawNode();
    drawList();
    drawPolicies(overview.policies);
    drawShadows(overview.policies, overview.node.policies, overview.isRecording);
    if (state.chosen !== null) drawContainer(await ask(`api/container?name=${encodeURIComponent(state.chosen)}`));
    document.body.dataset.state = overview.isLive ? "live" : "whole";
    if (overview.trouble) byId("node").textContent = overview.trouble;
  } catch (error) {
    byId("node").textContent = String(error.message || error);
  } finally {
    asking = false;
    // Another container was chosen meanwhile.
    if (isStale) { isStale = false; refresh(); }
  }
}

byId("find").addEventListener("input", () => state.overview && drawList());
byId("order").addEventListener("change", () => state.overview && drawList());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => state.charts.forEach((plot) => plot.redraw(false, true)));
addEventListener("hashchange", () => { fromHash(); refresh(); });
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== byId("find")) { event.preventDefault(); byId("find").focus(); }
});
fromHash();
refresh();
setInterval(() => { if (document.body.dataset.state !== "whole" && !document.hidden) refresh(); }, REFRESH_MILLIS);
