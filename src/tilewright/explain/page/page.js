"use strict";
// The chosen call is in the address: #kernel=NAME or #kernel=NAME:2. Everything that shows it has it as data-key.
// The root element says data-ready when the page is drawn, and in data-errors what went wrong.

const root = document.documentElement;
const failed = (what) => { root.dataset.errors = (root.dataset.errors ? root.dataset.errors + "\n" : "") + what; };
addEventListener("error", (event) => failed(event.message));
addEventListener("unhandledrejection", (event) => failed(String(event.reason)));

const $ = (id) => document.getElementById(id);
const all = (query, within = document) => [...within.querySelectorAll(query)];

// What is chosen. Sections lose the names that show them where no script runs: a browser would scroll to them.

for (const section of all("section[data-key]")) section.removeAttribute("id");

const keyed = new Map();
for (const one of all("[data-key]")) {
  const key = one.dataset.key;
  if (!keyed.has(key)) keyed.set(key, []);
  keyed.get(key).push(one);
}
const kernelOf = (key) => { const at = key.lastIndexOf(":"); return keyed.has(key) && at > 0 ? key.slice(0, at) : key; };

function wanted() {
  let text = location.hash.slice(1);
  try { text = decodeURIComponent(text); } catch { return ""; }
  const key = text.startsWith("kernel=") ? text.slice(7) : "";
  return keyed.has(key) ? key : "";
}

function choose(first) {
  const key = wanted();
  for (const one of all(".on, .kin")) one.classList.remove("on", "kin");
  const section = key ? keyed.get(key).find((one) => one.matches("section")) : $("overview");
  section.classList.add("on");
  if (key) {
    const own = section.dataset.programs;
    for (const [other, group] of keyed) {
      if (other !== key && kernelOf(other) === own) group.forEach((one) => one.classList.add("kin"));
    }
    keyed.get(key).forEach((one) => one.classList.add("on"));
  }
  const plot = section.querySelector(".plot");
  if (plot) plot.append($("roofline"));
  $("roofline").classList.toggle("chosen", Boolean(key));
  for (const svg of all(".canvas svg")) markEdges(svg);
  section.querySelector(".programs").append($("viewer"));
  showPrograms(section.dataset.programs);
  reveal();
  $("mini").href = location.hash || "#overview";
  $("mini").textContent = key ? `${key} · ${section.querySelector(".value")?.textContent ?? ""} ↓` : "";
  watch(section);
  if (first && key && !wide.matches) section.scrollIntoView();
  else if (wide.matches && scrollY > $("main").offsetTop) scrollTo(0, $("main").offsetTop);
}

function markEdges(svg) {
  const item = svg.querySelector(".kernel.on")?.dataset.item;
  if (item === undefined) return;
  for (const edge of all("[data-ends]", svg)) {
    if (edge.dataset.ends.split(" ").includes(item)) edge.classList.add("on");
  }
}

// The line at the foot of narrow screens, while the panel is out of sight.

const wide = matchMedia("(min-width: 960px)");
let seen = null;
function watch(section) {
  seen?.disconnect();
  $("mini").hidden = true;
  if (!section.dataset.key) return;
  seen = new IntersectionObserver(([entry]) => { $("mini").hidden = entry.isIntersecting; }, { rootMargin: "0px 0px -25%" });
  seen.observe(section);
}
$("mini").addEventListener("click", (event) => {
  event.preventDefault();
  document.querySelector("section.on").scrollIntoView();
});

// Programs: unpacked when they are shown.

const levels = $("levels");
let level = "schedule";
let shown = 0;

async function unpack(name) {
  const data = all("script[data-of]").find((one) => one.dataset.of === name).textContent;
  const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

async function showPrograms(name) {
  const turn = ++shown;
  if (typeof DecompressionStream === "undefined") {
    $("about").textContent = "This browser cannot unpack programs; the command line shows them: tilewright show MODEL"
      + (name === "overview" ? " --after plan" : " --kernel " + name);
    $("code").parentNode.hidden = true;
    root.dataset.programs = name;
    return;
  }
  const rows = await unpack(name);
  if (turn !== shown) return;
  levels.replaceChildren(...rows.map(([title]) => {
    const tab = document.createElement("button");
    tab.type = "button";
    tab.textContent = title;
    tab.setAttribute("role", "tab");
    tab.addEventListener("click", () => { level = title; showLevel(rows); });
    return tab;
  }));
  showLevel(rows);
  root.dataset.programs = name;
}

function showLevel(rows) {
  const row = rows.find(([title]) => title === level) ?? rows[0];
  for (const tab of levels.children) tab.setAttribute("aria-selected", String(tab.textContent === row[0]));
  $("about").textContent = row[1];
  $("code").innerHTML = row[2];
  $("code").parentNode.scrollTo(0, 0);
}

// Views: graphs and the list.

function view(name) {
  for (const tab of all("[data-view][role=tab]")) tab.setAttribute("aria-selected", String(tab.dataset.view === name));
  for (const canvas of all(".canvas")) canvas.hidden = canvas.dataset.view !== name;
  document.querySelector(".zooms").hidden = name === "list";
  const canvas = current();
  if (!canvas.dataset.scale) { scale(canvas, Math.max(fitting(canvas), wide.matches ? 0.7 : 0.9)); begin(canvas); }
  reveal();
}
const current = () => document.querySelector(".canvas:not([hidden])");
for (const tab of all("[data-view][role=tab]")) tab.addEventListener("click", () => view(tab.dataset.view));

for (const list of all("[role=tablist]")) {
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const tabs = [...list.children];
    const at = tabs.indexOf(document.activeElement);
    if (!step || at < 0) return;
    event.preventDefault();
    const next = tabs[(at + step + tabs.length) % tabs.length];
    next.focus();
    next.click();
  });
}

// Scale and place of graphs.

function fitting(canvas) {
  const sizes = all(":scope > svg", canvas).map((svg) => svg.viewBox.baseVal);
  const widest = Math.max(1, ...sizes.map((box) => box.width));
  const height = sizes.reduce((sum, box) => sum + box.height, 1);
  return Math.min(1, (canvas.clientWidth - 2) / widest, (canvas.clientHeight - 2) / height);
}

// A graph begins at the first box of its highest row, which may be far from the left.
function begin(canvas) {
  const boxes = all("svg [data-item]", canvas).map((box) => box.getBoundingClientRect());
  const top = Math.min(...boxes.map((box) => box.top));
  const first = boxes.find((box) => box.top < top + 20);
  if (!first) return;
  const middle = first.left + first.width / 2 - canvas.getBoundingClientRect().left + canvas.scrollLeft;
  canvas.scrollTo(middle - canvas.clientWidth / 2, 0);
}

function scale(canvas, wish, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
  const before = Number(canvas.dataset.scale) || 1;
  const next = Math.min(Math.max(wish, 0.08), 4);
  const [left, top] = [canvas.scrollLeft + x, canvas.scrollTop + y];
  for (const svg of all(":scope > svg", canvas)) {
    svg.style.width = svg.viewBox.baseVal.width * next + "px";
    svg.style.height = svg.viewBox.baseVal.height * next + "px";
  }
  canvas.dataset.scale = next;
  canvas.scrollTo((left * next) / before - x, (top * next) / before - y);
}

function zoom(way) {
  const canvas = current();
  const at = Number(canvas.dataset.scale) || 1;
  scale(canvas, { in: at * 1.3, out: at / 1.3, fit: fitting(canvas) }[way]);
}
for (const button of all("[data-zoom]")) button.addEventListener("click", () => zoom(button.dataset.zoom));

function reveal() {
  const canvas = current();
  const one = canvas?.querySelector(".on[data-key]");
  if (!one) return;
  const [box, room] = [one.getBoundingClientRect(), canvas.getBoundingClientRect()];
  if (box.top >= room.top && box.bottom <= room.bottom && box.left >= room.left && box.right <= room.right) return;
  canvas.scrollBy(box.left + box.width / 2 - room.left - room.width / 2, box.top + box.height / 2 - room.top - room.height / 2);
}

for (const canvas of all(".canvas:not([data-view=list])")) {
  canvas.addEventListener("keydown", (event) => {
    const way = { "+": "in", "=": "in", "-": "out", 0: "fit" }[event.key];
    if (way && !event.ctrlKey && !event.metaKey) { event.preventDefault(); zoom(way); }
  });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    const room = canvas.getBoundingClientRect();
    scale(canvas, Number(canvas.dataset.scale) * Math.exp(-event.deltaY / 300), event.clientX - room.left, event.clientY - room.top);
  }, { passive: false });
  drag(canvas);
  pinch(canvas);
}

function drag(canvas) {
  let from = null;
  let moved = false;
  canvas.addEventListener("mousedown", (event) => {
    if (event.button === 0) from = [event.clientX + canvas.scrollLeft, event.clientY + canvas.scrollTop];
    moved = false;
  });
  addEventListener("mousemove", (event) => {
    if (!from || !event.buttons) { from = null; canvas.classList.remove("held"); return; }
    const [x, y] = [from[0] - event.clientX, from[1] - event.clientY];
    if (!moved && Math.hypot(x - canvas.scrollLeft, y - canvas.scrollTop) < 5) return;
    moved = true;
    canvas.classList.add("held");
    canvas.scrollTo(x, y);
  });
  canvas.addEventListener("dragstart", (event) => event.preventDefault());
  canvas.addEventListener("click", (event) => { if (moved) event.preventDefault(); }, true);
}

function pinch(canvas) {
  let start = null;
  const apart = (touches) => Math.hypot(touches[0].clientX - touches[1].clientX, touches[0].clientY - touches[1].clientY);
  canvas.addEventListener("touchstart", (event) => {
    start = event.touches.length === 2 ? [apart(event.touches), Number(canvas.dataset.scale)] : null;
  }, { passive: true });
  canvas.addEventListener("touchmove", (event) => {
    if (!start || event.touches.length !== 2) return;
    event.preventDefault();
    const room = canvas.getBoundingClientRect();
    const [a, b] = event.touches;
    const [x, y] = [(a.clientX + b.clientX) / 2 - room.left, (a.clientY + b.clientY) / 2 - room.top];
    scale(canvas, (start[1] * apart(event.touches)) / start[0], x, y);
  }, { passive: false });
}

addEventListener("hashchange", () => choose(false));
view("kernels");
choose(true);
root.dataset.ready = "true";
