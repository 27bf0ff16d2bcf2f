"use strict";
(() => {
const {data, el, number, grouped, short, spare, style, table, behind, chartBox, draw, logAxis, linearAxis,
       lineDataset, chartConfig, themeButton, start} = Page;
const at = data.positions;
const trained = at.trained_length, length = at.length;
const TURN = 2 * Math.PI;
const percent = (v) => (v === 0 ? "–" : v < 0.001 ? "< 0.1 %" : `${(100 * v).toFixed(1)} %`);
const tokens = (v) => (!number(v) ? "never" : v < 100 ? short(v) : v < 1e5 ? grouped(Math.round(v)) : `${short(v / 1e3)} k`);
const tiny = (v) => (v === 0 ? "0" : v.toExponential(1));
const ENGINES = {hf: "Hugging Face", vllm: "vLLM", llamacpp: "llama.cpp"};
const fact = (value, label) => el("div", {}, el("span", {class: "value"}, value), el("span", {class: "label"}, label));
const context = (v) => (v >= 4194304 ? "over 4 M" : grouped(v));
const lengthMarks = (axis) => [
  ...(trained > 0 ? [{axis, value: trained, label: `trained ${grouped(trained)}`}] : []),
  ...(length !== trained ? [{axis, value: length, label: `in use ${grouped(length)}`}] : [])];

// ---- warnings and engines ----------------------------------------------------------------------------
function effect(w) {
  if (!number(w.value)) return "";
  const where = w.position ? ` at position ${grouped(w.position)}` : "";
  return (w.unit === "rad" ? `${short(w.value)} rad` : w.unit === "x" ? `${short(w.value)} times` : `${short(w.value)} ${w.unit}`) + where;
}
function warnings() {
  if (!at.warnings.length) return [el("h2", {}, "Warnings"), el("p", {class: "card"}, "None.")];
  const many = at.rotations.length > 1;
  return [el("h2", {}, "Warnings"), el("div", {class: "card"}, at.warnings.map((w) => el("div", {class: "warning"},
    el("p", {}, el("strong", {}, w.engine), many && number(w.rotation) ? ` (${at.rotations[w.rotation].title})` : null, ": ", w.text),
    el("p", {class: "small soft"}, effect(w) ? el("strong", {}, effect(w), " ") : null, el("code", {}, w.id)))))];
}
function engineWords(e, reach) {
  if (!e.expressible) return `Does not have it: ${e.reason}`;
  if (e.same) {
    const same = data.not_honoured.length ? "Computes the above, without the keys that are ignored" : "Computes what the file specifies";
    return same + (e.angle_rad > 1e-9 ? `, up to rounding in float32 (${tiny(e.angle_rad)} rad).` : ".");
  }
  const parts = [];
  if (e.frequency_ratio !== 1) {
    parts.push(`pair ${e.ratio_pair} has ${short(e.frequency_ratio ?? Infinity)} times the frequency, pair ${e.angle_pair} is off by ` +
      `${short(e.angle_rad)} rad at position ${grouped(reach - 1)}`);
  }
  if (Math.abs(e.amplitude_ratio - 1) > 1e-9) parts.push(`attention factor ${short(e.amplitude)}, ${short(e.amplitude_ratio)} times that of the file`);
  if (Math.abs(e.softmax_ratio - 1) > 1e-9) parts.push(`softmax scale times ${short(e.softmax_ratio)}`);
  if (e.axis_pairs) parts.push(`${e.axis_pairs} pairs have another position axis`);
  return parts.join("; ") + ".";
}
function engines(r) {
  return [el("h3", {}, "What engines compute"), table(null, r.engines.map((e) =>
    [ENGINES[e.engine] || e.engine, el("td", {class: "wide"}, engineWords(e, r.reach))]), {class: "protocol"})];
}
function facts(r) {
  const half = r.rotary_dim / 2;
  const mean = r.pairs.reduce((sum, p) => sum + p.unseen_share, 0) / r.pairs.length;
  const box = el("div", {class: "facts"}, fact(short(r.base), "base"), fact(`${half}`, "pairs"));
  if (trained > 0) {
    box.append(fact(`${r.critical_dimension} of ${2 * half}`, "critical dimension"),
               fact(String(r.incomplete_pairs), `pairs without a full rotation in ${grouped(trained)}`),
               fact(percent(mean), `new angles at ${grouped(r.reach)}`));
  }
  box.append(fact(context(r.longest_context), "tokens that the base supports"));
  return box;
}

// ---- charts of one rotation ----------------------------------------------------------------------------
function pairsChart(r) {
  const scaled = r.pairs.some((p) => p.frequency !== p.trained_frequency);
  const make = () => {
    const ys = [length];
    const line = (label, key, s) => lineDataset(label, r.pairs.filter((p) => p[key] > 0)
      .map((p) => ({x: p.pair, y: TURN / p[key]})), s, {pointRadius: 2});
    const datasets = [line(scaled ? "as used" : "all pairs", "frequency", style("as-shipped"))];
    if (scaled) datasets.push(line("in training", "trained_frequency", style("none")));
    datasets.forEach((d) => ys.push(...d.data.map((p) => p.y)));
    return chartConfig(datasets, {x: linearAxis("pair of dimensions"), y: logAxis("wavelength, tokens", ys)},
      lengthMarks("y"), (item) => `pair ${item.raw.x}`, (item) => `${item.dataset.label}: ${tokens(item.raw.y)} tokens`);
  };
  const axes = r.pairs.some((p) => p.axis !== 0);
  return [el("h3", {}, "Wavelength of each pair"), chartBox("Wavelength of each pair", make).box,
    el("p", {class: "small soft"}, "A pair whose wavelength (2 pi / frequency) exceeds the trained length never made a full rotation in training."),
    behind(table(["pair", "rad per token", "wavelength", `rotations in ${grouped(trained)}`, `rotations in ${grouped(r.reach)}`, "new angles",
                  ...(axes ? ["axis"] : [])],
      r.pairs.map((p) => [String(p.pair), p.frequency.toExponential(6), tokens(p.wavelength), p.trained_rotations.toFixed(3),
        p.target_rotations.toFixed(3), percent(p.unseen_share), ...(axes ? [String(p.axis)] : [])])))];
}
function unseenChart(r) {
  if (!r.pairs.some((p) => p.unseen_share > 0)) return [];
  const make = () => chartConfig(
    [lineDataset("new angles", r.pairs.map((p) => ({x: p.pair, y: 100 * p.unseen_share})), style("linear"), {pointRadius: 2})],
    {x: linearAxis("pair of dimensions"), y: linearAxis("% of distances", {min: 0, max: 100})}, [],
    (item) => `pair ${item.raw.x}`, (item) => `${item.raw.y.toFixed(1)} % of distances have new angles`);
  return [el("h3", {}, "Angles not seen in training"), chartBox("Share of new angles of each pair", make).box,
    el("p", {class: "small soft"}, `Share of the distances up to ${grouped(r.reach)} at which the angle of the pair is one that no distance ` +
      `up to ${grouped(trained)} has.`),
    behind(table(["pair", "new angles"], r.pairs.filter((p) => p.unseen_share > 0).map((p) => [String(p.pair), percent(p.unseen_share)])))];
}
function floatChart(r) {
  const lines = [["Hugging Face", "hugging_face", 0], ["llama.cpp, CPU", "llamacpp_cpu", 1], ["llama.cpp, CUDA", "llamacpp_cuda", 2]]
    .filter(([, key]) => r.float32.some((e) => e[key]));
  const make = () => {
    const ys = [];
    const datasets = lines.map(([label, key, i]) => lineDataset(label,
      r.float32.filter((e) => e[key] && e[key].radians > 0).map((e) => ({x: e.position, y: e[key].radians, pair: e[key].pair})), spare(i)));
    datasets.forEach((d) => ys.push(...d.data.map((p) => p.y)));
    const xs = r.float32.map((e) => e.position);
    return chartConfig(datasets, {x: logAxis("position", xs, xs), y: logAxis("radians", ys)}, [],
      (item) => `position ${grouped(item.raw.x)}`, (item) => `${item.dataset.label}: ${tiny(item.raw.y)} rad, pair ${item.raw.pair}`);
  };
  return [el("h3", {}, "Errors of float32 angles"), chartBox("Largest angle error against position", make).box,
    behind(table(["position", ...lines.map(([label]) => label)], r.float32.map((e) => [grouped(e.position),
      ...lines.map(([, key]) => (e[key] ? `${tiny(e[key].radians)} rad (pair ${e[key].pair})` : "–"))])))];
}
function boundChart(r) {
  if (!r.base_bounds.length) return [];
  const make = () => {
    const points = r.base_bounds.map((b) => ({x: b.context, y: b.base}));
    const own = {x: Math.max(1, Math.min(r.longest_context_trained, 4194304)), y: r.base};
    return chartConfig([
      lineDataset("smallest base", points, style("yarn")),
      lineDataset("this base and the longest context it supports", [own], style("linear"), {pointRadius: 7, showLine: false})],
      {x: logAxis("context, tokens", [...points.map((p) => p.x), own.x]), y: logAxis("base", [...points.map((p) => p.y), own.y])},
      lengthMarks("x"), (item) => `${grouped(item.raw.x)} tokens`, (item) => `${item.dataset.label}: ${short(item.raw.y)}`);
  };
  return [el("h3", {}, "Smallest base for a context"), chartBox("Smallest base against context", make).box,
    el("p", {class: "small soft"}, "With a smaller base there are distances within the context at which a key similar to the query no longer scores " +
      "higher than a random key on average (arXiv 2405.14591)."),
    behind(table(["context", "smallest base found"], r.base_bounds.map((b) => [grouped(b.context), String(b.rounded)])))];
}
function rotation(r) {
  return [el("h2", {}, at.rotations.length > 1 ? `Rotation of ${r.title}` : "The rotation"), el("div", {class: "card"},
    el("p", {class: "soft"}, `${r.title}: ${r.layout}, ${r.rotary_dim} of ${r.head_dim} dimensions, scaling ${r.scaling}` +
      (r.amplitude === 1 ? "." : `, attention factor (multiplies cos and sin) ${r.amplitude.toPrecision(10)}.`)),
    facts(r), engines(r)), el("div", {class: "card"}, pairsChart(r)),
    ...[unseenChart(r), boundChart(r), floatChart(r)].filter((c) => c.length).map((c) => el("div", {class: "card"}, c))];
}

// ---- decay ---------------------------------------------------------------------------------------------
const lineName = (d) => (d.factor === 1 ? d.method : `${d.method}, factor ${short(d.factor)}`);
function decayChart() {
  if (!at.decay.length) return [];
  const make = () => chartConfig(at.decay.map((d) => lineDataset(lineName(d),
    d.points.filter((p) => p.distance > 0).map((p) => ({x: p.distance, y: p.expected})),
    style(d.method === "as shipped" ? "as-shipped" : d.method), {pointRadius: 1.5})),
    {x: logAxis("distance, tokens", [1, length]), y: linearAxis("expected score")},
    lengthMarks("x"), (item) => `distance ${grouped(item.raw.x)}`, (item) => `${item.dataset.label}: ${item.raw.y.toFixed(4)}`);
  return [el("h2", {}, "Expected score against distance"), el("div", {class: "card"},
    chartBox("Expected score against distance", make).box,
    el("p", {class: "small soft"}, "The mean of cos(distance x frequency) over pairs: the expected score, relative to distance 0, of a query and a key " +
      "whose elements are independent with the same mean. RoFormer's bound (section 3.4.3) is in the table."),
    behind(table(["distance", ...at.decay.map(lineName), "bound, as shipped"], at.decay[0].points.map((p, i) =>
      [grouped(p.distance), ...at.decay.map((d) => d.points[i].expected?.toFixed(4) ?? "masked"), p.bound.toFixed(2)]))))];
}

// ---- frequency use -----------------------------------------------------------------------------------
function useChart() {
  const use = at.frequency_use;
  if (!use) return [];
  const layers = use.share.map((share, layer) => ({share, layer})).filter((l) => l.share.length);
  if (!layers.length) return [];  // nothing rotates
  const pairs = Math.max(...layers.map((l) => l.share.length));
  const mean = Array.from({length: pairs}, (_, i) => layers.reduce((s, l) => s + (l.share[i] || 0), 0) / layers.length);
  const make = () => chartConfig([lineDataset("mean of all layers", mean.map((y, x) => ({x, y: 100 * y})), style("yarn"), {pointRadius: 2}),
    ...[layers[0], layers[layers.length >> 1], layers.at(-1)].map((l, i) => lineDataset(`layer ${l.layer}`,
      l.share.map((y, x) => ({x, y: 100 * y})), spare(i), {pointRadius: 1}))],
    {x: linearAxis("pair of dimensions, from high to low frequency"), y: linearAxis("% of the score", {min: 0})}, [],
    (item) => `pair ${item.raw.x}`, (item) => `${item.dataset.label}: ${item.raw.y.toFixed(2)} %`);
  return [el("h2", {}, "How much each frequency contributes"), el("div", {class: "card"},
    chartBox("Share of each pair in the scores", make).box,
    el("p", {class: "small soft"}, `Mean of |q| |k| of each pair over all queries and keys of ${grouped(use.tokens)} tokens, relative to the sum over ` +
      "pairs: an upper bound of its contribution to a score at any positions."),
    behind(table(["layer", ...mean.map((_, i) => String(i))], [["mean", ...mean.map((v) => (100 * v).toFixed(1))],
      ...layers.map((l) => [String(l.layer), ...l.share.map((v) => (100 * v).toFixed(1))])], {caption: "Per cent."})))];
}

// ---- the explorer ----------------------------------------------------------------------------------------
function explorer() {
  const first = at.rotations[0];
  const initial = {base: first ? first.base : 10000, dim: first ? first.rotary_dim : 128, trained: trained || 4096, length,
                   factor: Math.max(1, length / (trained || length)), method: "yarn"};
  const state = {...initial};
  // Sliders have a logarithmic scale and show the value itself.
  const slider = (key, label, low, high, step, get, set, show) => {
    const out = el("output", {}, show(state[key]));
    const input = el("input", {type: "range", min: low, max: high, step, "aria-label": label, value: get(state[key]), oninput: () => {
      state[key] = set(Number(input.value));
      out.textContent = show(state[key]);
      update();
    }});
    return el("label", {class: "slider"}, el("span", {}, label, " ", out), input);
  };
  const power = (v) => Math.round(2 ** v);
  const pick = el("select", {"aria-label": "method", onchange: () => { state.method = pick.value; update(); }},
    Explorer.methods.map((m) => el("option", m === state.method ? {value: m, selected: ""} : {value: m}, m)));
  const dims = [...new Set([8, 16, 32, 64, 96, 128, 192, 256, initial.dim])].sort((a, b) => a - b);
  const dim = el("select", {"aria-label": "rotated dimensions", onchange: () => { state.dim = Number(dim.value); update(); }},
    dims.map((d) => el("option", d === initial.dim ? {value: d, selected: ""} : {value: d}, String(d))));
  const answers = el("div", {class: "facts"});
  const rows = el("div", {});
  const compute = () => {
    const plain = Explorer.frequencies("none", state), f = Explorer.frequencies(state.method, state);
    return {plain, f, unseen: f.map((x, i) => Explorer.unseenShare(plain[i], state.trained, x, state.length))};
  };
  const wavelengths = chartBox("Wavelengths, explorer", () => {
    const {plain, f} = compute();
    const line = (label, list, s) => lineDataset(label, list.map((x, i) => ({x: i, y: TURN / x})).filter((p) => number(p.y)), s, {pointRadius: 2});
    return chartConfig([line(state.method, f, style(state.method)), line("in training", plain, style("none"))],
      {x: linearAxis("pair of dimensions"), y: logAxis("wavelength, tokens", [...plain, ...f].filter((x) => x > 0).map((x) => TURN / x).concat(state.length))},
      [{axis: "y", value: state.trained, label: `trained ${grouped(state.trained)}`}, {axis: "y", value: state.length, label: `in use ${grouped(state.length)}`}],
      (item) => `pair ${item.raw.x}`, (item) => `${item.dataset.label}: ${tokens(item.raw.y)} tokens`);
  });
  const scores = chartBox("Expected score, explorer", () => {
    const {plain, f} = compute();
    const distances = [];
    for (let m = 1; m < state.length; m *= 1.12) if (Math.round(m) !== distances.at(-1)) distances.push(Math.round(m));
    const line = (label, list, s) => lineDataset(label, distances.map((m) => ({x: m, y: Explorer.expected(list, m)})), s, {pointRadius: 0});
    return chartConfig([line(state.method, f, style(state.method)), line("none", plain, style("none"))],
      {x: logAxis("distance, tokens", [1, state.length]), y: linearAxis("expected score")},
      [{axis: "x", value: state.trained, label: `trained ${grouped(state.trained)}`}],
      (item) => `distance ${grouped(item.raw.x)}`, (item) => `${item.dataset.label}: ${item.raw.y.toFixed(4)}`);
  });
  const LIMIT = 262144;
  function update() {
    const {plain, f, unseen} = compute();
    const longest = Explorer.longestContext(f, LIMIT);
    answers.replaceChildren(
      fact(`${2 * (f.length - Explorer.incompletePairs(plain, state.trained))} of ${state.dim}`, "critical dimension"),
      fact(percent(unseen.reduce((a, b) => a + b, 0) / f.length), `new angles at ${grouped(state.length)}`),
      fact(longest === LIMIT ? `over ${grouped(LIMIT)}` : grouped(longest), "tokens that the frequencies support"),
      fact(Explorer.amplitude(state.method, state).toFixed(4), "attention factor"));
    rows.replaceChildren(table(["pair", "rad per token", "wavelength", "new angles"], f.map((x, i) =>
      [String(i), x.toExponential(6), tokens(x > 0 ? TURN / x : NaN), percent(unseen[i])])));
    if (wavelengths.chart) { draw(wavelengths); draw(scores); }
  }
  update();
  return [el("h2", {}, "Explorer: other settings"), el("div", {class: "card"},
    el("div", {class: "sliders"},
      el("label", {class: "slider"}, el("span", {}, "method"), pick), el("label", {class: "slider"}, el("span", {}, "rotated dimensions"), dim),
      slider("base", "base", 6, 30, 0.05, Math.log2, (v) => Number((2 ** v).toPrecision(3)), (v) => grouped(Math.round(v))),
      slider("factor", "factor", 0, 7, 0.05, Math.log2, (v) => Number((2 ** v).toPrecision(3)), short),
      slider("trained", "trained length", 7, 18, 0.25, Math.log2, power, grouped),
      slider("length", "length", 7, 20, 0.25, Math.log2, power, grouped)),
    answers, wavelengths.box, scores.box, behind(rows))];
}

// ---- the page --------------------------------------------------------------------------------------------
const page = document.getElementById("report");
page.append(el("header", {}, el("div", {}, el("h1", {}, `${data.model}: its positions`),
  el("p", {class: "soft"}, (trained > 0 ? `Trained at ${grouped(trained)} tokens` : "Trained at an unknown length") +
    `, analysed for ${grouped(length)}. The model was not run` + (at.frequency_use ? ", except for what its scores are made of and where attention looks." : "."))), themeButton()));
page.append(...warnings(), ...at.rotations.flatMap(rotation), ...decayChart(), ...useChart(), ...AttentionPictures.sections());
if (at.rotations.length) page.append(...explorer());
page.append(el("h2", {}, "The plan"), el("div", {class: "card"}, el("pre", {}, data.plan)));
start();
})();
