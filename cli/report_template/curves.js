"use strict";
(() => {
const {data, el, grouped, short, spare, isDark, table, behind, chartBox, draw, logAxis, linearAxis, lineDataset,
       chartConfig, heatOf, themeButton, start} = Page;
const name = (b) => `base ${grouped(short(b.base))}`;
const fact = (value, label) => el("div", {}, el("span", {class: "value"}, value), el("span", {class: "label"}, label));
const context = (v) => (v >= 4194304 ? "over 4 M" : grouped(v));
const small = (v) => (Math.abs(v) < 1e-12 ? "0" : v.toPrecision(4));
const plain = (base, dim) => Explorer.frequencies("none", {base, dim});

// One line for each base against distance, with its table: rows by distance, columns by base.
function byDistance(title, words, digits, value, limit) {
  const points = (b, of) => b.curve.filter((p) => p.distance > 0).map((p) => ({x: p.distance, y: of(p)}));
  const chart = chartBox(title, () => chartConfig(
    data.bases.flatMap((b, i) => {
      const s = spare(i), line = lineDataset(name(b), points(b, value), {...s, dash: []}, {pointRadius: 2});
      return limit ? [line, lineDataset(`${name(b)}, integral`, points(b, limit), {...s, dash: [4, 4]}, {pointRadius: 0})] : [line];
    }),
    {x: logAxis("distance m, tokens", [1, data.length]), y: linearAxis(title)}, [],
    (item) => `distance ${grouped(item.raw.x)}`, (item) => `${item.dataset.label}: ${item.raw.y.toFixed(digits)}`));
  const head = ["distance", ...data.bases.flatMap((b) => (limit ? [name(b), "integral"] : [name(b)]))];
  const rows = data.bases[0].curve.map((p, i) => [grouped(p.distance), ...data.bases.flatMap((b) =>
    (limit ? [value, limit] : [value]).map((of) => of(b.curve[i]).toFixed(digits)))]);
  return [el("h2", {}, title), el("div", {class: "card"}, el("p", {class: "soft"}, words), chart.box, behind(table(head, rows)))];
}

function bounds() {
  const supported = table(["base", "supports, tokens"], data.bases.map((b) => [short(b.base), context(b.longest_context)]));
  const card = el("div", {class: "card"}, el("p", {class: "soft"},
    "A base supports a length if C(m) is not negative at any distance up to it (arXiv 2405.14591)."), supported);
  const list = data.base_bounds.filter((b) => b.base > 0);
  if (!list.length) card.append(el("p", {}, "No base supports the length."));
  if (list.length) {
    const chart = chartBox("Smallest base against length", () => chartConfig(
      [lineDataset("smallest base found", list.map((b) => ({x: b.context, y: b.base})), {...spare(0), dash: []})],
      {x: logAxis("length, tokens", list.map((b) => b.context)), y: logAxis("base", list.map((b) => b.base))}, [],
      (item) => `${grouped(item.raw.x)} tokens`, (item) => `${item.dataset.label}: ${item.raw.y.toPrecision(5)}`));
    card.append(chart.box, behind(table(["length", "smallest base found"], list.map((b) => [grouped(b.context), grouped(b.rounded)]))));
  }
  return [el("h2", {}, "Base against length"), card];
}

function smoothness() {
  const dims = data.bases[0].smoothness.map((s) => s.dim);
  const all = data.bases.flatMap((b) => b.smoothness.map((s) => s.roughness));
  const chart = chartBox("Roughness against dimension", () => chartConfig(
    data.bases.map((b, i) => lineDataset(name(b), b.smoothness.map((s) => ({x: s.dim, y: s.roughness})), {...spare(i), dash: []})),
    {x: logAxis("dimensions", dims, dims), y: logAxis("roughness", all)}, [],
    (item) => `${item.raw.x} dimensions`, (item) => `${item.dataset.label}: ${item.raw.y.toPrecision(4)}`));
  const rows = dims.map((d, i) => [String(d), ...data.bases.flatMap((b) =>
    [small(b.smoothness[i].roughness), small(b.smoothness[i].deviation)])]);
  return [el("h2", {}, "Smoothness against dimension"), el("div", {class: "card"},
    el("p", {class: "soft"}, `Roughness: root mean square of C(m-1) - 2 C(m) + C(m+1) over m = 1 to ${grouped(data.smooth_distances)}. ` +
      "Deviation: that of C(m) less its integral."), chart.box,
    behind(table(["dimensions", ...data.bases.flatMap((b) => [`${name(b)}, roughness`, "deviation"])], rows)))];
}

// ---- other bases and dimensions, computed here --------------------------------------------------------
const channel = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
const COLOURS = {light: ["#c4511a", "#f6f7f9", "#0a55a8"], dark: ["#ff8a4c", "#1a212b", "#5aa5ff"]};
// -1 to 1 as a colour between the three.
function colour(value) {
  const [low, middle, high] = COLOURS[isDark() ? "dark" : "light"].map(channel);
  const end = value < 0 ? low : high, t = Math.min(1, Math.abs(value));
  return middle.map((c, i) => Math.round(c + (end[i] - c) * t));
}
const ROWS = 256;
// A picture with a column for each pair and a row for each of ROWS distances, as an element to draw from.
function picture(f, longest) {
  const rows = Math.min(ROWS, longest + 1), canvas = document.createElement("canvas");
  canvas.width = f.length; canvas.height = rows;
  const context2d = canvas.getContext("2d"), image = context2d.createImageData(f.length, rows);
  for (let r = 0; r < rows; ++r) {
    const m = rows > 1 ? Math.round((rows - 1 - r) * longest / (rows - 1)) : 0;  // distance 0 at the bottom
    f.forEach((x, i) => image.data.set([...colour(Math.cos(m * x)), 255], 4 * (r * f.length + i)));
  }
  context2d.putImageData(image, 0, 0);
  return canvas;
}

function explorer() {
  const state = {base: data.bases.at(-1).base, dim: data.dim, length: data.length, rows: Math.min(data.length, 255)};
  const compute = () => plain(state.base, state.dim);
  const answers = el("div", {class: "facts"}), curveRows = el("div", {}), heatRows = el("div", {});
  const controls = new Map();
  const slider = (key, label, high, step, set) => {
    const out = el("output", {}), input = el("input", {type: "range", min: 0, max: high, step, "aria-label": label,
      oninput: () => { state[key] = set(Number(input.value)); update(); }});
    controls.set(key, () => { out.textContent = grouped(short(state[key])); input.value = Math.log2(state[key]); });
    return el("label", {class: "slider"}, el("span", {}, label, " ", out), input);
  };
  const dims = [...new Set([8, 16, 32, 64, 96, 128, 192, 256, 512, 1024, data.dim])].sort((a, b) => a - b);
  const dim = el("select", {"aria-label": "dimensions", onchange: () => { state.dim = Number(dim.value); update(); }},
    dims.map((d) => el("option", d === data.dim ? {value: d, selected: ""} : {value: d}, String(d))));
  const chosen = el("div", {class: "tabs"}, data.bases.map((b) =>
    el("button", {type: "button", onclick: () => { state.base = b.base; update(); }}, name(b))));
  const distances = () => {
    const list = [];
    for (let m = 1; m < state.length; m *= 1.12) if (Math.round(m) !== list.at(-1)) list.push(Math.round(m));
    return [...list.filter((m) => m < state.length), state.length];
  };
  const curve = chartBox("C(m), explorer", () => {
    const f = compute();
    return chartConfig([lineDataset("C(m)", distances().map((m) => ({x: m, y: Explorer.expected(f, m)})), {...spare(0), dash: []}, {pointRadius: 0})],
      {x: logAxis("distance m, tokens", [1, state.length]), y: linearAxis("C(m)")}, [],
      (item) => `distance ${grouped(item.raw.x)}`, (item) => `C: ${item.raw.y.toFixed(4)}`);
  });
  const heat = chartBox("Heat map of cos(m theta)", () => {
    const f = compute(), cells = picture(f, state.rows);
    const config = chartConfig([], {x: linearAxis("pair i", {min: 0, max: f.length}), y: linearAxis("distance m, tokens", {min: 0, max: state.rows})}, []);
    config.plugins.push(heatOf(cells));
    return config;
  });
  const scale = el("p", {class: "small soft"}, "Blue is cos(m theta) = 1, orange -1, and the colour of the card 0. ",
    `Beyond ${ROWS - 1} tokens the map shows ${ROWS} evenly spaced distances.`);
  function heatTable(f) {
    const pairs = [...new Set(Array.from({length: 8}, (_, i) => Math.round(i * (f.length - 1) / 7)))];
    const list = [0];
    for (let m = 1; m < state.rows; m *= 2) list.push(m);
    list.push(state.rows);
    return table(["distance", ...pairs.map((i) => `i = ${i}`)], list.map((m) =>
      [grouped(m), ...pairs.map((i) => Math.cos(m * f[i]).toFixed(3))]));
  }
  function update() {
    const f = compute(), longest = Explorer.longestContext(f, 65536);
    controls.forEach((show) => show());
    answers.replaceChildren(fact(grouped(short(state.base)), "base"), fact(String(f.length), "pairs"),
      fact(longest === 65536 ? `over ${grouped(65536)}` : grouped(longest), "tokens that the base supports"),
      fact(grouped(Number((2 * Math.PI / f.at(-1)).toPrecision(4))), "longest wavelength, tokens"));
    curveRows.replaceChildren(table(["distance", "C(m)", "bound"], data.bases[0].curve.map((p) => p.distance).filter((m) => m <= state.length)
      .map((m) => [grouped(m), Explorer.expected(f, m).toFixed(4), Explorer.bound(f, m).toFixed(2)])));
    heatRows.replaceChildren(heatTable(f));
    if (heat.chart) { draw(curve); draw(heat); }
  }
  const power = (v) => Math.round(2 ** v);
  const precise = (v) => Number((2 ** v).toPrecision(3));
  const card = el("div", {class: "card"}, chosen,
    el("div", {class: "sliders"}, el("label", {class: "slider"}, el("span", {}, "dimensions"), dim),
      slider("base", "base", 30, 0.05, precise), slider("length", "length", 20, 0.25, power),
      slider("rows", "length of the heat map", 16, 0.25, power)),
    answers, curve.box, behind(curveRows));
  update();
  return [el("h2", {}, "Explorer: other bases and dimensions"), card,
    el("div", {class: "card"}, el("h3", {}, "Heat map of cos(m theta_i)"), scale, heat.box, behind(heatRows))];
}

// ---- the page --------------------------------------------------------------------------------------------
const page = document.getElementById("report");
page.append(el("header", {}, el("div", {}, el("h1", {}, "Decay curves of plain RoPE"),
  el("p", {class: "soft"}, `${data.dim} dimensions, theta_i = base^(-2i/${data.dim}), distances up to ${grouped(data.length)}. No model was run.`)),
  themeButton()));
page.append(...byDistance("Expected score C(m)", "The mean over pairs of cos(m theta_i), and its limit for ever more pairs, the integral of " +
    "cos(m base^-t) over t = 0 to 1 (dashed). Lines join the distances of the table.", 4, (p) => p.mean, (p) => p.integral),
  ...byDistance("Bound of RoFormer", "The mean over pairs of |S_j|, S_j = the sum of exp(i m theta_l) over l < j (arXiv 2104.09864, section 3.4.3).",
    2, (p) => p.bound),
  ...bounds(), ...smoothness(), ...explorer());
start();
})();
