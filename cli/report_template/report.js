"use strict";
(() => {
const {ppl, withFactor, usesFactor, titles, isNamed, noneAt} = Answer;
const {data, isDark, el, number, grouped, fixed, share, short, SPARE, style, swatch, table, behind, codeBlock, chartBox,
       logAxis, linearAxis, lineDataset, band, chartConfig, themeButton, start} = Page;

// The trained length is 0 where it is unknown; charts then have no mark for it.
const trainedMark = (axis, trained) => (trained > 0 ? [{axis, value: trained, label: `trained ${grouped(trained)}`}] : []);
const trainedAt = (trained) => (trained > 0 ? `trained at ${grouped(trained)} tokens` : "trained at an unknown length");

// ---- what a sweep holds ----------------------------------------------------------------------------
const gridCell = (sweep, m, c) => {
  const index = sweep.grid.cells[m][c];
  return index < 0 ? null : sweep.cells[index];
};
function columnTitle(column) {
  return column.factor > 0 ? [grouped(column.length), el("span", {class: "minor"}, `factor ${short(column.factor)}`)]
                           : [grouped(column.length)];
}
const passkeyOf = (cell) => Tasks.taskOf(cell, "passkey");

// Cells of one line: with the factor matched to each length ("matched"; no scaling up to the trained
// length), or with one factor at all lengths.
function seriesCells(sweep, method, factor) {
  const trained = sweep.header.trained_length;
  if (!isNamed(method) || method === "none") {
    return sweep.cells.filter((c) => c.method === method).sort((a, b) => a.length - b.length);
  }
  if (factor !== "matched") {
    return sweep.cells.filter((c) => c.method === method && c.factor === factor)
      .sort((a, b) => a.length - b.length);
  }
  const m = sweep.grid.methods.indexOf(method);
  return sweep.grid.columns.map((column, i) =>
    column.length > trained ? gridCell(sweep, m, i) : noneAt(sweep, column.length)).filter((c) => c);
}

// ---- sections ----------------------------------------------------------------------------------------
function bigTable(sweep) {
  const {methods, columns} = sweep.grid;
  const best = columns.map((_, c) => Math.min(...methods.map((_, m) => {
    const cell = gridCell(sweep, m, c);
    return cell && number(cell.perplexity) ? cell.perplexity : Infinity;
  })));
  const rows = methods.map((method, m) => [[swatch(method), titles.has(method) ? el("span", {title: titles.get(method)}, method) : method], ...columns.map((_, c) => {
    const cell = gridCell(sweep, m, c);
    if (!cell) return el("td", {}, "–");
    const others = methods.some((_, other) => other !== m && gridCell(sweep, other, c));
    const isBest = others && cell.perplexity === best[c];
    return el("td", {class: isBest ? "best" : "", title: cell.scaling || ""},
      el("span", {class: "big"}, ppl(cell.perplexity)),
      number(cell.standard_error)
        ? el("span", {class: "error"}, ` ± ${ppl(cell.perplexity * cell.standard_error)}`) : null,
      number(cell.bits_per_byte) ? el("span", {class: "minor"}, `${cell.bits_per_byte.toFixed(3)} bits/byte`) : null,
      passkeyOf(cell) ? el("span", {class: "minor"}, `passkey ${share(Tasks.scoreOf(passkeyOf(cell)))}`) : null);
  })]);
  const every = table(
    ["method", "factor", "length", "perplexity", "± (nats)", "bits/byte", "passkey", "windows", "tokens", "seconds"],
    sweep.cells.map((c) => [c.method, short(c.factor), grouped(c.length), ppl(c.perplexity),
      fixed(c.standard_error, 3), fixed(c.bits_per_byte, 3),
      passkeyOf(c) ? share(Tasks.scoreOf(passkeyOf(c))) : "–", String(c.windows), grouped(c.scored_tokens),
      c.shared_with ? "shared" : fixed(c.seconds, 1)]));
  const trained = sweep.header.trained_length;
  return [el("h2", {}, "Every method at every length"), el("div", {class: "card"},
    table(["method", ...columns.map(columnTitle)], rows, {caption:
      "Perplexity (± one standard error), bits per byte and passkey accuracy." + (trained > 0
        ? ` Beyond the trained ${grouped(trained)} tokens each method has the factor length / trained length; up to it, ` +
          "the largest of these factors, which shows its cost for short text." : "") +
      " A star marks the lowest perplexity."}),
    el("details", {}, el("summary", {}, `All ${sweep.cells.length} cells`), every))];
}

function perplexityChart(sweep) {
  const trained = sweep.header.trained_length;
  const factors = [...new Set(sweep.cells.filter((c) => isNamed(c.method) && c.method !== "none")
    .map((c) => c.factor))].sort((a, b) => a - b);
  let factor = "matched";
  const pick = el("select", {"aria-label": "factor", onchange: () => {
    factor = pick.value === "matched" ? "matched" : Number(pick.value);
    draw(entry);
  }}, el("option", {value: "matched"}, "factor matched to each length"),
    factors.map((f) => el("option", {value: String(f)}, `factor ${short(f)} at every length`)));
  const make = () => {
    const datasets = [], all = [], lengths = new Set();
    for (const method of sweep.grid.methods) {
      const s = style(method);
      const points = seriesCells(sweep, method, factor).filter((c) => number(c.perplexity)).map((c) => {
        const se = number(c.standard_error) ? c.standard_error : 0;
        lengths.add(c.length);
        all.push(c.perplexity * Math.exp(se), c.perplexity * Math.exp(-se));
        return {x: c.length, y: c.perplexity, low: c.perplexity * Math.exp(-se),
                high: c.perplexity * Math.exp(se), cell: c};
      }).filter((p) => p.cell.method === method || p.x === trained);  // all lines begin at the trained length
      if (!points.length) continue;
      const own = points.filter((p) => p.cell.method === method);
      datasets.push(lineDataset(method, points, s, {
        pointRadius: points.map((p) => (p.cell.method === method ? 4 : 0))}), ...band(own, s, method));
    }
    const xs = [...lengths].sort((a, b) => a - b);
    return chartConfig(datasets,
      {x: logAxis("length in tokens", xs, xs), y: logAxis("perplexity", all)},
      trainedMark("x", trained),
      (item) => `${grouped(item.raw.x)} tokens`,
      (item) => `${withFactor(item.dataset.label, item.raw.cell.factor)}: ${ppl(item.raw.y)}`);
  };
  const entry = chartBox("Perplexity against length for each method", make);
  const {methods, columns} = sweep.grid;
  return [el("h2", {}, "Perplexity against length"), el("div", {class: "card"}, pick, entry.box,
    el("p", {class: "small soft"}, "Both axes are logarithmic; bands are ± one standard error. Click a name to hide it."),
    behind(table(["method", ...columns.map((c) => grouped(c.length))], methods.map((method) => {
      const cells = seriesCells(sweep, method, "matched");
      return [method, ...columns.map((column) => {
        const c = cells.find((x) => x.length === column.length);
        const error = c && number(c.standard_error) ? ` ± ${ppl(c.perplexity * c.standard_error)}` : "";
        return c ? ppl(c.perplexity) + error : "–";
      })];
    }), {caption: "Factor matched to each length; no scaling up to the trained length."})))];
}

function positionChart(sweep) {
  const trained = sweep.header.trained_length;
  const {methods, columns} = sweep.grid;
  let last = -1, series = [];
  for (let c = columns.length - 1; c >= 0 && !series.length; --c) {
    series = methods.map((method, m) => ({method, cell: gridCell(sweep, m, c)}))
      .filter((s) => s.cell && s.cell.bucket_nll && s.cell.bucket_nll.length);
    last = c;
  }
  if (!series.length) return [];
  const length = columns[last].length;
  const make = () => {
    const xs = [], ys = [];
    const datasets = series.map(({method, cell}) => {
      const points = cell.bucket_nll.map((nll, i) => {
        const x = (cell.bucket_edges[i] + cell.bucket_edges[i + 1]) / 2;
        xs.push(x);
        if (number(nll)) ys.push(nll);
        return {x, y: nll, from: cell.bucket_edges[i], to: cell.bucket_edges[i + 1]};
      }).filter((p) => number(p.y));
      return lineDataset(method, points, style(method), {pointRadius: 2.5});
    });
    const ticks = [];
    for (let t = 1; t <= length; t *= 2) if (t >= Math.min(...xs)) ticks.push(t);
    return chartConfig(datasets,
      {x: logAxis("position in the text, tokens", [...xs, length], ticks),
       y: linearAxis("loss, nats per token", {suggestedMin: Math.min(...ys), suggestedMax: Math.max(...ys)})},
      trainedMark("x", trained),
      (item) => `positions ${grouped(item.raw.from)} to ${grouped(item.raw.to - 1)}`,
      (item) => `${item.dataset.label}: ${fixed(item.raw.y, 3)}`);
  };
  const edges = series[0].cell.bucket_edges;
  return [el("h2", {}, `Loss by position, at ${grouped(length)} tokens`), el("div", {class: "card"},
    chartBox("Loss by position for each method", make).box,
    el("p", {class: "small soft"}, "Lower is better. A method fails where its line rises."),
    behind(table(["positions", ...series.map((s) => s.method)],
      series[0].cell.bucket_nll.map((_, i) => [`${grouped(edges[i])} – ${grouped(edges[i + 1] - 1)}`,
        ...series.map((s) => fixed(s.cell.bucket_nll[i], 3))]))))];
}

function entropyChart(sweep) {
  const trained = sweep.header.trained_length;
  const {methods, columns} = sweep.grid;
  const lines = methods.map((method) => ({method, cells: seriesCells(sweep, method, "matched")
    .filter((c) => c.method === method && number(c.entropy))})).filter((l) => l.cells.length);
  if (!lines.length) return [];
  const make = () => {
    const xs = new Set(), ys = [];
    const datasets = lines.map(({method, cells}) => lineDataset(method, cells.map((c) => {
      xs.add(c.length);
      ys.push(c.entropy);
      return {x: c.length, y: c.entropy, cell: c};
    }), style(method)));
    const ticks = [...xs].sort((a, b) => a - b);
    return chartConfig(datasets,
      {x: logAxis("length in tokens", ticks, ticks),
       y: linearAxis("entropy, nats", {suggestedMin: Math.min(...ys), suggestedMax: Math.max(...ys)})},
      trainedMark("x", trained),
      (item) => `${grouped(item.raw.x)} tokens`,
      (item) => `${withFactor(item.dataset.label, item.raw.cell.factor)}: ${fixed(item.raw.y, 3)} nats, ` +
        `${fixed(100 * item.raw.cell.entropy_share, 1)} % of uniform`);
  };
  return [el("h2", {}, "Entropy of attention against length"), el("div", {class: "card"},
    chartBox("Entropy of attention against length for each method", make).box,
    el("p", {class: "small soft"}, "Entropy of the attention weights of the queries at the end of each window, mean over layers and heads: its exponential " +
      "is the effective number of keys. An entropy above that of training dilutes attention; log-n limits it by scaling " +
      "scores with the logarithm of the length."),
    behind(table(["method", ...columns.map((c) => grouped(c.length))], lines.map(({method, cells}) =>
      [method, ...columns.map((column) => {
        const c = cells.find((x) => x.length === column.length);
        return c ? `${fixed(c.entropy, 3)} (${fixed(100 * c.entropy_share, 1)} %)` : "–";
      })]), {caption: "Nats, and relative to ln(number of keys), the entropy of uniform attention."})))];
}

function frequencyChart(sweep) {
  const trained = sweep.header.trained_length;
  const {methods, columns} = sweep.grid;
  const c = columns.length - 1;
  const series = methods.map((method, m) => ({method, cell: gridCell(sweep, m, c)}))
    .filter((s) => s.cell && s.cell.inv_freq && s.cell.inv_freq.length);
  if (!series.length) return [];
  const length = columns[c].length;
  const wavelength = (f) => (f > 0 ? 2 * Math.PI / f : NaN);
  const make = () => {
    const ys = trained > 0 ? [trained, length] : [length];
    const datasets = series.map(({method, cell}) => {
      const points = cell.inv_freq.map((f, i) => ({x: i, y: wavelength(f)})).filter((p) => number(p.y));
      ys.push(...points.map((p) => p.y));
      return lineDataset(method, points, style(method), {pointRadius: 2});
    });
    return chartConfig(datasets,
      {x: linearAxis("pair of dimensions"), y: logAxis("wavelength, tokens", ys)},
      [...trainedMark("y", trained), {axis: "y", value: length, label: `target ${grouped(length)}`}],
      (item) => `pair ${item.raw.x}`, (item) => `${item.dataset.label}: ${short(item.raw.y)} tokens`);
  };
  return [el("h2", {}, `Frequencies of each method, at ${grouped(length)} tokens`), el("div", {class: "card"},
    chartBox("Wavelength of each pair for each method", make).box,
    el("p", {class: "small soft"}, "Each pair of dimensions makes one full rotation per wavelength. A pair whose wavelength exceeds " +
      "the trained length never made a full rotation in training: without scaling it has angles at larger distances that " +
      "the model has never seen. Methods differ in the pairs whose wavelength they increase."),
    behind(table(["pair", ...series.map((s) => s.method)], series[0].cell.inv_freq.map((_, i) =>
      [String(i), ...series.map((s) => (number(wavelength(s.cell.inv_freq[i])) ? short(wavelength(s.cell.inv_freq[i])) : "–"))]))))];
}

function protocol(sweep) {
  const h = sweep.header, first = sweep.cells[0];
  const range = (key) => {
    const values = [...new Set(sweep.cells.map((c) => c[key]))].sort((a, b) => a - b);
    return values.length < 5 ? values.map(grouped).join(", ") : `${grouped(values[0])} to ${grouped(values.at(-1))}`;
  };
  const seconds = sweep.cells.filter((c) => !c.shared_with).reduce((sum, c) => sum + (c.seconds || 0), 0);
  const rows = [
    ["model", h.model_path], ["model hash", h.model_hash], ["text", h.text_path],
    ["text tokens", grouped(h.text_tokens)], ["text hash", h.text_hash],
    ["tokenizer", h.tokenizer], ["tokenizer hash", h.tokenizer_hash || "–"],
    ["trained length", h.trained_length > 0 ? `${grouped(h.trained_length)} tokens` : "unknown"], ["protocol", h.protocol],
    ["windows per cell", range("windows")], ["scored tokens per cell", range("scored_tokens")],
    ["BOS rule", h.bos], ["tasks", h.tasks_protocol || "none"], ["seed", String(h.seed)],
    ...(first.kv ? [["KV cache", first.kv]] : []), ["compute", h.compute], ["angles", h.angles], ["threads", String(h.threads)],
    ["seconds, all cells", seconds.toFixed(1)], ["Ropewalk", h.version],
  ];
  return [el("h2", {}, "How it was measured"), el("div", {class: "card"},
    table(null, rows.map(([k, v]) => [k, v || "–"]), {class: "protocol"}),
    el("p", {class: "small soft"}, h.protocol.startsWith("aligned")
      ? "Every cell scores the same tokens of the text; only the length of the context before them differs. Standard " +
        "errors are over windows, and differences between methods are taken window by window."
      : (h.protocol.startsWith("sliding") ? "Windows share text, so standard errors may be too small; they"
        : "Windows do not overlap; standard errors") + " are over windows, and differences between methods are taken " +
        "window by window."))];
}

function plan(sweep) {
  const first = sweep.cells[0];
  const rows = [];
  const seen = new Set();
  for (const c of sweep.cells) {
    const key = `${c.method} ${c.factor} ${c.plan_hash}`;
    if (seen.has(key)) continue;
    seen.add(key);
    rows.push([c.method, short(c.factor), el("td", {class: "wide"}, c.scaling), number(c.amplitude) ? short(c.amplitude) : "–",
               el("td", {}, el("code", {}, c.plan_hash.slice(0, 12)))]);
  }
  return [el("h2", {}, "Position settings"), el("div", {class: "card"},
    first.rotary_dim ? el("p", {}, `Rotary, ${first.rotary_dim} dimensions of each head (${first.rotary_dim / 2} pairs), base ` +
      `${grouped(short(first.rope_base))}, ${trainedAt(sweep.header.trained_length)}.`) : null,
    sweep.header.notes.length ? el("ul", {}, sweep.header.notes.map((n) =>
      el("li", {}, n.includes("\n") ? el("pre", {}, n) : n))) : null,
    el("details", {}, el("summary", {}, "All measured settings, with the hashes of their plans"),
      table(["method", "factor", "scaling", "attention factor", "plan hash"], rows)))];
}

function command(sweep) {
  if (!sweep.header.command) return [];
  return [el("h2", {}, "How to reproduce this"), el("div", {class: "card"}, codeBlock(sweep.header.command))];
}

// ---- several sweeps side by side ---------------------------------------------------------------------
function bestAt(sweep, length) {
  return sweep.cells.filter((c) => c.length === length && number(c.perplexity))
    .sort((a, b) => a.perplexity - b.perplexity)[0];
}
function comparison(sweeps) {
  const lengths = [...new Set(sweeps.flatMap((s) => s.cells.map((c) => c.length)))].sort((a, b) => a - b);
  const bytes = sweeps.every((s) => s.cells.every((c) => number(c.bits_per_byte)));
  const value = (c) => (bytes ? c.bits_per_byte : c.perplexity);
  const unit = bytes ? "bits per byte" : "perplexity";
  const rows = sweeps.map((s) => [s.label, ...lengths.map((length) => {
    const r = s.recommendations.find((x) => x.length === length);
    const cell = r && r.method ? s.cells.find((c) => c.method === r.method && c.factor === r.factor && c.length === length)
                               : length <= s.header.trained_length ? noneAt(s, length) : null;
    if (!cell) return el("td", {}, r ? (r.judged ? "none usable" : "not judged") : "–");
    return el("td", {}, cell.method === "none" ? "no scaling" : cell.method,
      el("span", {class: "minor"}, `${fixed(value(cell), bytes ? 3 : 1)}${passkeyOf(cell) ? `, passkey ${share(Tasks.scoreOf(passkeyOf(cell)))}` : ""}`));
  })]);
  const make = () => {
    const datasets = [], ys = [], xs = new Set();
    sweeps.forEach((s, i) => {
      const look = SPARE[i % SPARE.length];
      for (const [what, dash, of] of [["best method", [], bestAt], ["no scaling", [4, 4], noneAt]]) {
        const points = lengths.map((length) => of(s, length)).filter((c) => c && number(value(c)))
          .map((c) => ({x: c.length, y: value(c), cell: c}));
        points.forEach((p) => { xs.add(p.x); ys.push(p.y); });
        datasets.push(lineDataset(`${s.label}: ${what}`, points, {color: look[isDark() ? 1 : 0], dash, mark: look[3]}));
      }
    });
    const ticks = [...xs].sort((a, b) => a - b);
    return chartConfig(datasets, {x: logAxis("length in tokens", ticks, ticks), y: logAxis(unit, ys)},
      [...new Set(sweeps.map((s) => s.header.trained_length))].flatMap((t) => trainedMark("x", t)),
      (item) => `${grouped(item.raw.x)} tokens`,
      (item) => `${item.dataset.label} (${withFactor(item.raw.cell.method, item.raw.cell.factor)}): ${fixed(item.raw.y, 3)}`);
  };
  return [el("h2", {}, "Side by side"), el("div", {class: "card"},
    table(["sweep", ...lengths.map(grouped)], rows, {caption: `The recommended method and its ${unit} at each length.`}),
    chartBox("Best method and no scaling of each sweep", make).box,
    el("p", {class: "small soft"}, data.compared))];
}

// ---- the page ------------------------------------------------------------------------------------------
const page = document.getElementById("report");
const many = data.sweeps.length > 1;
const firstHeader = data.sweeps[0].header;
page.append(el("header", {},
  el("div", {}, el("h1", {}, many ? `${data.sweeps.length} sweeps compared` : `${firstHeader.model_name}: context extension`),
    many ? null : el("p", {class: "soft"}, `${trainedAt(firstHeader.trained_length).replace("t", "T")}; measured on ${firstHeader.text_path}.`)),
  themeButton()));
if (many) page.append(...comparison(data.sweeps));
for (const sweep of data.sweeps) {
  page.append(el("div", {class: "sweep"},
    many ? el("h1", {}, sweep.label) : null,
    many ? el("p", {class: "soft"}, `${sweep.header.model_name}, ${trainedAt(sweep.header.trained_length)}; measured on ${sweep.header.text_path}.`) : null,
    Answer.sections(sweep), bigTable(sweep), perplexityChart(sweep), positionChart(sweep),
    entropyChart(sweep), Tasks.sections(sweep), Tasks.race(sweep), Kv.sections(sweep), frequencyChart(sweep), protocol(sweep), plan(sweep), command(sweep)));
}
start();
})();
