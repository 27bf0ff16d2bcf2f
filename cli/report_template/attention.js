"use strict";
// Where attention looks, by distance, and which pairs make it look there: sections of the page of
// `ropewalk inspect --html`, from data.positions.attention (docs/inspect-format.md).
const AttentionPictures = (() => {
const {data, el, number, grouped, short, spare, isDark, table, behind, chartBox, draw, logAxis, linearAxis, lineDataset,
       chartConfig, heatOf} = Page;
const at = data.positions, trained = at.trained_length;
const percent = (v) => (Math.abs(v) < 5e-5 ? "–" : `${(100 * v).toFixed(1)} %`);
const fact = (value, label) => el("div", {}, el("span", {class: "value"}, value), el("span", {class: "label"}, label));
const sum = (list) => list.reduce((a, b) => a + b, 0);
const name = (p) => `${p.method}, ${grouped(p.tokens)} tokens`;
const trainedMark = () => (trained > 0 ? [{axis: "x", value: trained, label: `trained ${grouped(trained)}`}] : []);
const distances = (p, b) => (p.edges[b + 1] - p.edges[b] === 1 ? grouped(p.edges[b]) : `${grouped(p.edges[b])}–${grouped(p.edges[b + 1] - 1)}`);
// The mean of layers, of one number or of each of a list.
const meanOf = (layers, key) => layers[0][key].map((_, b) => sum(layers.map((l) => l[key][b])) / layers.length);
// A bin on a logarithmic axis: the middle of it, distance 0 at one half.
const middle = (p, b) => (p.edges[b] === 0 ? 0.5 : Math.sqrt(p.edges[b] * Math.max(p.edges[b], p.edges[b + 1] - 1)));
const ofKey = (p, mass) => mass.map((m, b) => ({x: middle(p, b), y: m / p.keys[b], b}));
const rotating = (p) => p.layers.filter((l) => l.logits);
const later = (p) => p.layers.slice(p.layers.length > 1 ? 1 : 0);

// A chart of lines() = [[label, points], ..] of the measurement p().
function byDistance(title, lines, yAxis, show, p) {
  const make = () => {
    const datasets = lines().map(([label, points], i) => lineDataset(label, points.filter((q) => number(q.y)), spare(i), {pointRadius: 2}));
    const all = datasets.flatMap((d) => d.data);
    return chartConfig(datasets, {x: logAxis("distance, tokens (0 at the left end)", all.map((q) => q.x)), y: yAxis(all.map((q) => q.y))},
      trainedMark(), (item) => `distance ${distances(p(), item.raw.b)}`, (item) => `${item.dataset.label}: ${show(item.raw.y)}`);
  };
  return chartBox(title, make);
}
const weights = (values) => logAxis("weight of one key", values.filter((v) => v > 0));

// ---- the heat map: a column for each pair, a row for each layer --------------------------------------
const COLOURS = {light: ["#c4511a", "#f6f7f9", "#0a55a8"], dark: ["#ff8a4c", "#1a212b", "#5aa5ff"]};
const channel = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
function picture(rows) {
  const [content, none, position] = COLOURS[isDark() ? "dark" : "light"].map(channel);
  const pairs = Math.max(...rows.map((l) => l.logits.position.length)), canvas = document.createElement("canvas");
  canvas.width = pairs; canvas.height = rows.length;
  const context2d = canvas.getContext("2d"), image = context2d.createImageData(pairs, rows.length);
  rows.forEach((l, r) => l.logits.position.forEach((p, i) => {
    const share = p + l.logits.content[i], most = Math.max(...l.logits.position.map((q, j) => q + l.logits.content[j]));
    const t = Math.sqrt(Math.max(0, share / most)), of = Math.min(1, Math.max(0, share > 0 ? p / share : 0));
    const end = content.map((c, k) => c + (position[k] - c) * of);
    image.data.set([...none.map((c, k) => Math.round(c + (end[k] - c) * t)), 255], 4 * ((rows.length - 1 - r) * pairs + i));
  }));
  context2d.putImageData(image, 0, 0);
  return canvas;
}
function heatMap(p) {
  return chartBox("Share of each pair in the scores, by layer", () => {
    const rows = rotating(p()), pairs = Math.max(...rows.map((l) => l.logits.position.length)), cells = picture(rows);
    const slow = rows.map((l) => l.logits.incomplete || []).find((list) => list.length);
    const config = chartConfig([], {x: linearAxis("pair of dimensions, from high to low frequency", {min: 0, max: pairs}),
      y: linearAxis("layers that rotate", {min: 0, max: rows.length, ticks: {precision: 0}})},
      slow ? [{axis: "x", value: slow[0], label: ""}] : []);
    config.plugins.unshift(heatOf(cells));
    return config;
  });
}

// ---- one measurement -----------------------------------------------------------------------------------
const slowShares = (s) => ["position", "content"].map((key) => sum((s.incomplete || []).map((i) => s[key][i])));
function shareRows(p) {
  return p.layers.map((l, i) => {
    const s = l.logits;
    if (!s) return [String(i), el("td", {class: "wide", colspan: "7"}, `not measured: ${l.no_logits}`)];
    const [position, content] = slowShares(s);
    return [String(i), percent(sum(s.position)), percent(sum(s.content)), percent(s.unrotated), percent(s.by_distance),
            ...(s.incomplete ? [percent(position), percent(content), percent(sum(s.unseen))] : ["?", "?", "?"])];
  });
}
function facts(p) {
  const list = p.layers.map((l) => l.logits).filter((s) => s);
  const mean = (of) => percent(sum(list.map(of)) / list.length);
  const box = el("div", {class: "facts"});
  const beyond = p.edges.findIndex((e) => e >= trained);
  if (trained > 0 && beyond > 0 && beyond < p.keys.length) {
    box.append(fact(percent(sum(p.layers.map((l) => sum(l.mass.slice(beyond)))) / p.layers.length), "weight beyond the trained length"));
  }
  box.append(fact(percent(sum(p.layers.map((l) => l.first_token)) / p.layers.length), "weight on the first token"));
  if (!list.length) return box;
  box.append(fact(mean((s) => sum(s.position)), "of what pairs add to the scores is position"));
  if (list[0].incomplete) {
    box.append(fact(mean((s) => sum(slowShares(s))), "is in pairs that never turned in training"),
               fact(mean((s) => sum(s.unseen)), "is at angles that training never had"));
  }
  return box;
}
function weightTable(p) {
  return table(["layer", ...p.keys.map((_, b) => distances(p, b)), "first token", "learned sink"], p.layers.map((l, i) =>
    [String(i), ...l.mass.map(percent), percent(l.first_token), percent(l.sink)]), {caption: "Share of all weight."});
}
function pairTables(p) {
  return [table(["layer", "position", "content", "unrotated", "whole score by distance", "never turned: position", "content", "new angles"], shareRows(p)),
    ...rotating(p).map((l) => table(["pair", ...l.logits.position.map((_, i) => String(i))],
      [["position", ...l.logits.position.map(percent)], ["content", ...l.logits.content.map(percent)]],
      {caption: `Layer ${p.layers.indexOf(l)}.`}))];
}
const weightLines = (p) => [["first layer", ofKey(p, p.layers[0].mass)], ["mean of later layers", ofKey(p, meanOf(later(p), "mass"))],
  ["all keys alike", p.keys.map((_, b) => ({x: middle(p, b), y: 1 / sum(p.keys), b}))]];
function scoreLines(p) {
  const logits = rotating(p).map((l) => l.logits);
  const line = (key) => meanOf(logits, key).map((y, b) => ({x: middle(p, b), y, b}));
  return [["all pairs", line("score")], ...(logits[0].score_incomplete ? [["pairs that never turned in training", line("score_incomplete")]] : [])];
}
// What one measurement shows, and buttons to choose it.
function chosenCard(all) {
  let p = all[0];
  const of = () => p, numbers = el("div", {}), weightRows = el("div", {}), pairRows = el("div", {});
  const charts = [byDistance("Weight of one key by distance", () => weightLines(p), weights, (v) => v.toExponential(2), of)];
  const card = el("div", {class: "card"}, numbers, el("h3", {}, "Weight of one key by distance"), charts[0].box, behind(weightRows));
  if (rotating(p).length) {
    charts.push(byDistance("What the distance adds to a score", () => scoreLines(p), () => linearAxis("score, nats"), (v) => v.toFixed(3), of), heatMap(of));
    card.append(el("h3", {}, "What the distance adds to a score"), charts[1].box,
      el("p", {class: "small soft"}, "Mean over heads, layers and late queries, less the mean over distances; a nat more is e times the weight."),
      el("h3", {}, "Which pairs carry position, which meaning"), charts[2].box,
      el("p", {class: "small soft"}, "The fuller a cell, the more of the layer's scores the pair makes (of their variance over keys; the strongest pair of each " +
        "layer is full). Blue is what the distance explains, orange what depends on the content at equal distance. Layer 0 is at the bottom; right of " +
        "the dashed line are pairs that made less than one rotation within the trained length."));
  }
  card.append(behind(pairRows));
  const tabs = all.map((q) => el("button", {type: "button", onclick: () => show(q)}, name(q)));
  const show = (q) => {
    p = q;
    tabs.forEach((tab, i) => tab.setAttribute("aria-selected", String(all[i] === p)));
    numbers.replaceChildren(facts(p));
    weightRows.replaceChildren(weightTable(p));
    pairRows.replaceChildren(...pairTables(p));
    charts.forEach((chart) => { if (chart.chart) draw(chart); });
  };
  show(p);
  return [el("div", {class: "tabs"}, tabs), card];
}

function sections() {
  const all = at.attention;
  if (!all) return [];
  const note = at.attention_note ? [el("p", {class: "card"}, at.attention_note)] : [];
  if (!all.length) return [el("h2", {}, "Where attention looks"), ...note];
  const longest = all.reduce((a, b) => (b.tokens > a.tokens ? b : a));
  const together = byDistance("Weight of one key by distance, mean of all layers",
    () => all.map((p) => [name(p), ofKey(p, meanOf(p.layers, "mass"))]), weights, (v) => v.toExponential(2), () => longest);
  return [el("h2", {}, "Where attention looks"), ...note, el("div", {class: "card"},
    el("p", {class: "soft"}, `Weights of ${all[0].queries.length} late queries, mean over heads and layers, by the distance of the key; the first token of the text is ` +
      "apart, whatever its distance."), together.box,
    behind(table(["distance", ...all.map(name)], longest.keys.map((_, b) => [distances(longest, b), ...all.map((p) => {
      const i = p.edges.indexOf(longest.edges[b]);
      return i >= 0 && i < p.keys.length ? (meanOf(p.layers, "mass")[i] / p.keys[i]).toExponential(2) : "–";
    })])))), ...chosenCard(all)];
}
return {sections};
})();
