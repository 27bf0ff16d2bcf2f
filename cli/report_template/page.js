"use strict";
// Shared by all pages of Ropewalk: theme, elements, tables, charts. The script of the page follows.
const Page = (() => {
const data = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement;

// ---- theme: the system's, a button, or ?theme=dark -------------------------------------------
const systemDark = window.matchMedia("(prefers-color-scheme: dark)");
let chosenTheme = new URLSearchParams(location.search).get("theme");
const isDark = () => root.dataset.theme === "dark";
function applyTheme() {
  root.dataset.theme = chosenTheme || (systemDark.matches ? "dark" : "light");
}
applyTheme();

// ---- small helpers; all text goes through textContent, so nothing in the data is markup --------
function el(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props || {})) {
    if (key === "class") node.className = value;
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) node.append(child);
  }
  return node;
}
const number = (v) => typeof v === "number" && Number.isFinite(v);
const grouped = (n) => (Math.abs(n) < 10000 ? String(n) : String(n).replace(/\B(?=(\d{3})+$)/g, "\u202f"));
const fixed = (v, digits) => (number(v) ? v.toFixed(digits) : "–");
// Two digits, an exact tie (eighths) to the even one, as the program's texts round.
const share = (v) => (number(v) ? (Number.isInteger(8 * v) && !Number.isInteger(4 * v) ? Math.round(50 * v) / 50 : v).toFixed(2) : "–");
const short = (v) => String(Number.isInteger(v) ? v : Number(v.toPrecision(4)));

// Colours of Okabe and Ito, which colour-blind readers can distinguish; dashes and marks differ too.
const STYLES = {
  "none": ["#3c4654", "#c9d3e0", [], "circle"],
  "linear": ["#c4511a", "#ff8a4c", [7, 4], "rect"],
  "ntk": ["#b98300", "#f2c14e", [2, 3], "triangle"],
  "dynamic": ["#2a93cf", "#7fd0ff", [10, 3, 2, 3], "rectRot"],
  "by-parts": ["#00805c", "#3ddbab", [5, 2], "crossRot"],
  "by-parts-repo": ["#b0568a", "#f3a3cf", [3, 2, 3, 6], "star"],
  "yarn": ["#0a55a8", "#5aa5ff", [12, 4], "rectRounded"],
  "llama3": ["#7a1fa2", "#cf8bff", [], "triangle"],
  "as-shipped": ["#5d6d00", "#c5d94e", [1, 2], "cross"],
};
const SPARE = [["#8c3b3b", "#ff9b9b", [4, 4], "rect"], ["#00707a", "#58e0ec", [8, 2], "circle"],
               ["#6b5300", "#e0c060", [2, 2], "star"], ["#444c9c", "#a9b0ff", [6, 6], "rectRot"],
               ["#b3003c", "#ff7fa5", [9, 3], "triangle"], ["#2f6b2f", "#8fd98f", [1, 3], "rectRounded"],
               ["#7a5c9e", "#d0b8f0", [12, 2, 2, 2], "crossRot"], ["#a06000", "#ffbf66", [5, 5], "cross"],
               ["#005f8a", "#66ccff", [3, 3], "rect"], ["#60605a", "#d6d6c8", [14, 3], "star"]];
const spare = (i) => {
  const s = SPARE[i % SPARE.length];
  return {color: s[isDark() ? 1 : 0], dash: s[2], mark: s[3]};
};
const styles = new Map(Object.entries(STYLES));
function style(method) {
  if (!styles.has(method)) {
    styles.set(method, SPARE[(styles.size - Object.keys(STYLES).length) % SPARE.length]);
  }
  const s = styles.get(method);
  return {color: s[isDark() ? 1 : 0], dash: s[2], mark: s[3]};
}

function translucent(hex, alpha) {
  const n = parseInt(hex.slice(1), 16);
  return `rgba(${n >> 16}, ${(n >> 8) & 255}, ${n & 255}, ${alpha})`;
}

function swatch(method, s = style(method)) {
  const ns = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(ns, "svg");
  svg.setAttribute("width", "30"); svg.setAttribute("height", "10");
  svg.setAttribute("class", "swatch"); svg.setAttribute("aria-hidden", "true");
  const line = document.createElementNS(ns, "line");
  for (const [k, v] of Object.entries({x1: 1, y1: 5, x2: 29, y2: 5, "stroke-width": 3,
                                       stroke: s.color, "stroke-dasharray": s.dash.join(" ")})) {
    line.setAttribute(k, v);
  }
  svg.append(line);
  svg.dataset.method = method;
  return svg;
}

function table(head, rows, options = {}) {
  const t = el("table", {class: options.class || ""});
  if (head) t.append(el("thead", {}, el("tr", {}, head.map((h) => el("th", {scope: "col"}, h)))));
  t.append(el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, i) => {
    if (cell instanceof HTMLTableCellElement) return cell;
    return i === 0 ? el("th", {scope: "row"}, cell) : el("td", {}, cell);
  })))));
  const scroll = el("div", {class: "scroll"}, t);
  return options.caption ? el("div", {}, el("p", {class: "small soft"}, options.caption), scroll) : scroll;
}
const behind = (...content) => el("details", {}, el("summary", {}, "The numbers as a table"), ...content);

async function copyText(text, button) {
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch (refused) {  // pages opened from a file may not use the clipboard everywhere
    const area = el("textarea", {});
    area.value = text;
    document.body.append(area);
    area.select();
    done = document.execCommand("copy");
    area.remove();
  }
  const label = button.textContent;
  button.textContent = done ? "Copied" : "Select it";
  setTimeout(() => { button.textContent = label; }, 1500);
}
function codeBlock(text) {
  const button = el("button", {type: "button", onclick: () => copyText(text, button)}, "Copy");
  return el("div", {class: "setting"}, el("pre", {}, text), button);
}

// ---- charts --------------------------------------------------------------------------------------
const drawn = [];  // {canvas, make, chart}, made again when the theme changes
function chartBox(label, make) {
  const canvas = el("canvas", {role: "img", "aria-label": label});
  const legend = el("div", {class: "legend"});
  const entry = {canvas, make, legend, hidden: new Set(), chart: null};
  drawn.push(entry);
  entry.box = el("div", {}, el("div", {class: "chart"}, canvas), legend);
  return entry;
}
function draw(entry) {
  if (entry.chart) entry.chart.destroy();
  const config = entry.make();
  entry.chart = new Chart(entry.canvas, config);
  const {datasets} = config.data;
  const apply = () => {
    datasets.forEach((d, i) => entry.chart.setDatasetVisibility(i, !entry.hidden.has(d.label)));
    entry.chart.update();
  };
  entry.legend.replaceChildren(...datasets.filter((d) => !d.isBand).map((d) => {
    const button = el("button", {type: "button", "aria-pressed": String(!entry.hidden.has(d.label)), onclick: () => {
      if (!entry.hidden.delete(d.label)) entry.hidden.add(d.label);
      button.setAttribute("aria-pressed", String(!entry.hidden.has(d.label)));
      apply();
    }}, swatch(d.label, {color: d.borderColor, dash: d.borderDash}), d.label);
    return button;
  }));
  if (entry.hidden.size) apply();
}
const cssVar = (name) => getComputedStyle(root).getPropertyValue(name).trim();

// Ticks of a logarithmic axis at round values, about 4 to 9 of them.
function logTicks(min, max) {
  for (const steps of [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 5, 7],
                       [1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9]]) {
    const ticks = [];
    for (let e = Math.floor(Math.log10(min)); e <= Math.ceil(Math.log10(max)); ++e) {
      for (const s of steps) {
        const v = Number((s * 10 ** e).toPrecision(3));
        if (v >= min * 0.999 && v <= max * 1.001) ticks.push(v);
      }
    }
    if (ticks.length >= 4) return ticks;
  }
  const ticks = [];
  for (let i = 0; i <= 5; ++i) ticks.push(Number((min + (max - min) * i / 5).toPrecision(3)));
  return ticks;
}
function logAxis(title, values, ticks) {
  const good = values.filter((v) => number(v) && v > 0);
  let min = Math.min(...good), max = Math.max(...good);
  if (!good.length) { min = 1; max = 10; }
  const pad = Math.max((max / min) ** 0.04, 1.02);
  min /= pad; max *= pad;
  const at = ticks || logTicks(min, max);
  return {
    type: "logarithmic", min, max,
    title: {display: true, text: title, color: cssVar("--soft")},
    grid: {color: cssVar("--grid")},
    afterBuildTicks: (axis) => { axis.ticks = at.map((value) => ({value})); },
    ticks: {color: cssVar("--soft"), callback: (v) => grouped(short(v)), maxRotation: 50, autoSkip: true},
  };
}
function linearAxis(title, extra) {
  return Object.assign({
    type: "linear", title: {display: true, text: title, color: cssVar("--soft")},
    grid: {color: cssVar("--grid")}, ticks: {color: cssVar("--soft")},
  }, extra);
}
// Lines at fixed places: {axis: "x" | "y", value, label}.
const marks = {
  id: "marks",
  afterDatasetsDraw(chart, _args, options) {
    const {ctx, chartArea: a, scales} = chart;
    for (const m of options.lines || []) {
      const p = scales[m.axis].getPixelForValue(m.value);
      const inside = m.axis === "x" ? p >= a.left && p <= a.right : p >= a.top && p <= a.bottom;
      if (!inside) continue;
      ctx.save();
      ctx.strokeStyle = ctx.fillStyle = cssVar("--soft");
      ctx.lineWidth = 1.5;
      ctx.setLineDash([4, 4]);
      ctx.beginPath();
      if (m.axis === "x") { ctx.moveTo(p, a.top); ctx.lineTo(p, a.bottom); }
      else { ctx.moveTo(a.left, p); ctx.lineTo(a.right, p); }
      ctx.stroke();
      ctx.font = "12px system-ui, sans-serif";
      const width = ctx.measureText(m.label).width;
      if (m.axis === "x") {
        const left = p + 6 + width > a.right;
        ctx.textAlign = left ? "right" : "left";
        ctx.fillText(m.label, left ? p - 6 : p + 6, a.top + 14);
      } else {
        ctx.fillText(m.label, a.left + 6, p - 5);
      }
      ctx.restore();
    }
  },
};
function lineDataset(label, points, s, extra) {
  return Object.assign({
    label, data: points, borderColor: s.color, backgroundColor: s.color, borderDash: s.dash,
    pointStyle: s.mark, pointRadius: 4, pointHoverRadius: 6, borderWidth: 2.2, tension: 0, spanGaps: true,
  }, extra);
}
function band(points, s, group) {
  const plain = {borderWidth: 0, pointRadius: 0, pointHitRadius: 0, isBand: true, label: group};
  return [
    Object.assign({data: points.map((p) => ({x: p.x, y: p.high})), fill: false}, plain),
    Object.assign({data: points.map((p) => ({x: p.x, y: p.low})), fill: "-1",
                   backgroundColor: translucent(s.color, 0.16)}, plain),
  ];
}
function chartConfig(datasets, scales, lines, tooltipTitle, tooltipLabel) {
  return {
    type: "line", data: {datasets}, plugins: [marks],
    options: {
      animation: false, responsive: true, maintainAspectRatio: false,
      interaction: {mode: "nearest", axis: "x", intersect: false}, scales,
      plugins: {
        marks: {lines},
        legend: {display: false},
        tooltip: {
          filter: (item) => !item.dataset.isBand,
          itemSort: (a, b) => b.parsed.y - a.parsed.y,
          callbacks: {title: (items) => (items.length ? tooltipTitle(items[0]) : ""), label: tooltipLabel},
        },
      },
    },
  };
}

// A plugin that fills the area of a chart with `cells`, a canvas of one pixel a cell, below its lines.
const heatOf = (cells) => ({id: "heat", beforeDatasetsDraw(chart) {
  const {ctx, chartArea: a} = chart;
  ctx.save();
  ctx.imageSmoothingEnabled = false;
  ctx.drawImage(cells, a.left, a.top, a.right - a.left, a.bottom - a.top);
  ctx.restore();
}});

// ---- drawing ----------------------------------------------------------------------------------
function themeButton() {
  const button = el("button", {type: "button", onclick: () => {
    chosenTheme = isDark() ? "light" : "dark";
    refresh();
  }}, "Light / dark");
  return button;
}
function refresh() {
  applyTheme();
  document.querySelectorAll("th svg.swatch line, h3 svg.swatch line").forEach((line) =>
    line.setAttribute("stroke", style(line.parentNode.dataset.method).color));
  drawn.forEach(draw);
}
// Draws every chart, now and whenever the theme changes. The page is complete afterwards.
function start() {
  Chart.defaults.font.family = "system-ui, sans-serif";
  Chart.defaults.font.size = 13;
  refresh();
  systemDark.addEventListener("change", () => { if (!chosenTheme) refresh(); });
  root.dataset.ready = "yes";
}

return {data, isDark, el, number, grouped, fixed, share, short, SPARE, spare, style, swatch, table, behind, codeBlock,
        chartBox, draw, logAxis, linearAxis, lineDataset, band, chartConfig, heatOf, themeButton, start};
})();
