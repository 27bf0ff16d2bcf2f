// Tasks with questions and answers (kv, RULER) and the race: sections of the report of a sweep.

const Tasks = (() => {
const {el, number, grouped, fixed, short, style, swatch, table, behind, chartBox, logAxis, linearAxis,
  lineDataset, band, chartConfig} = Page;

// The score that papers print: recall where continuations were searched, else exact answers.
const scoreOf = (r) => (number(r.recall) ? r.recall : r.exact);
const percent = (v) => `${Math.round(100 * v)} %`;
const taskOf = (cell, name) => (cell && cell.tasks || []).find((r) => r.task === name);
const cellAt = (sweep, m, c) => (sweep.grid.cells[m][c] < 0 ? null : sweep.cells[sweep.grid.cells[m][c]]);
const share = {suggestedMin: 0, suggestedMax: 1};

function againstLength(sweep, name) {
  const {methods, columns} = sweep.grid;
  const of = (m) => columns.map((column, c) => ({x: column.length, r: taskOf(cellAt(sweep, m, c), name)})).filter((p) => p.r);
  const entry = chartBox(`Score of ${name} against length for each method`, () => {
    const xs = [...new Set(methods.flatMap((_, m) => of(m).map((p) => p.x)))].sort((a, b) => a - b);
    const datasets = methods.map((method, m) => lineDataset(method,
      of(m).map((p) => ({x: p.x, y: scoreOf(p.r), r: p.r})), style(method), {})).filter((d) => d.data.length);
    return chartConfig(datasets, {x: logAxis("length in tokens", xs, xs), y: linearAxis("score", share)}, [],
      (item) => `${grouped(item.raw.x)} tokens`,
      (item) => `${item.dataset.label}: ${percent(item.raw.y)}, ${fixed(item.raw.r.mean_nll, 2)} nats`);
  });
  const numbers = table(["method", ...columns.map((c) => grouped(c.length))], methods.map((method, m) =>
    [method, ...columns.map((_, c) => {
      const r = taskOf(cellAt(sweep, m, c), name);
      return r ? `${percent(scoreOf(r))}, ${fixed(r.mean_nll, 3)}` : "–";
    })]), {caption: "Score, and nats per token of the true answer, teacher-forced."});
  return [entry.box, behind(numbers)];
}

// LongPPL: the perplexity of the key tokens alone, beside that of all scored tokens.
function keyTokens(sweep) {
  const {methods, columns} = sweep.grid;
  const of = (m) => columns.map((column, c) => ({x: column.length, cell: cellAt(sweep, m, c)}))
    .map((p) => Object.assign(p, {r: taskOf(p.cell, "key-tokens")})).filter((p) => p.r && number(p.r.mean_nll));
  const entry = chartBox("LongPPL against length for each method", () => {
    const xs = [...new Set(methods.flatMap((_, m) => of(m).map((p) => p.x)))].sort((a, b) => a - b), all = [];
    const datasets = methods.flatMap((method, m) => {
      const points = of(m).map(({x, r, cell}) => {
        const error = number(r.standard_error) ? r.standard_error : 0;
        const [low, y, high] = [-error, 0, error].map((e) => Math.exp(r.mean_nll + e));
        all.push(low, high);
        return {x, y, low, high, r, cell};
      });
      return points.length ? [lineDataset(method, points, style(method), {}), ...band(points, style(method), method)] : [];
    });
    return chartConfig(datasets, {x: logAxis("length in tokens", xs, xs), y: logAxis("LongPPL", all)}, [],
      (item) => `${grouped(item.raw.x)} tokens`,
      (item) => `${item.dataset.label}: ${fixed(item.raw.y, 2)} (all tokens ${fixed(item.raw.cell.perplexity, 2)})`);
  });
  const numbers = table(["method", ...columns.map((c) => grouped(c.length))], methods.map((method, m) =>
    [method, ...columns.map((_, c) => {
      const cell = cellAt(sweep, m, c), r = taskOf(cell, "key-tokens");
      return r ? `${fixed(r.mean_nll, 3)} ± ${fixed(r.standard_error, 3)} of ${r.answers.length}; ${fixed(cell.mean_nll, 3)} ± ${fixed(cell.standard_error, 3)}` : "–";
    })]), {caption: "Nats per key token ± one standard error by windows, and how many there are; behind them nats per scored token."});
  return [entry.box, behind(numbers)];
}

// Answers by the depth of what was asked for, at the longest length, in tenths.
function againstDepth(sweep, name) {
  const {methods, columns} = sweep.grid;
  let last = columns.length - 1;
  while (last >= 0 && !methods.some((_, m) => taskOf(cellAt(sweep, m, last), name))) --last;
  const of = (m) => {
    const r = last < 0 ? null : taskOf(cellAt(sweep, m, last), name);
    const sums = Array.from({length: 10}, () => [0, 0]);
    for (const a of r ? r.answers.filter((answer) => number(answer.depth)) : []) {
      const at = sums[Math.min(9, Math.floor(10 * a.depth))];
      at[0] += number(a.recall) ? a.recall : Number(a.exact);
      at[1] += 1;
    }
    return sums.map(([sum, n], i) => ({x: (i + 0.5) / 10, y: n ? sum / n : NaN, n})).filter((p) => p.n);
  };
  if (!methods.some((_, m) => of(m).length > 1)) return [];
  const length = grouped(columns[last].length);
  const entry = chartBox(`Score of ${name} against depth at ${length} tokens`, () =>
    chartConfig(methods.map((method, m) => lineDataset(method, of(m), style(method), {})).filter((d) => d.data.length),
      {x: linearAxis("depth of what is asked for (0 is the beginning)", {min: 0, max: 1}), y: linearAxis("score", share)}, [],
      (item) => `depth ${fixed(item.raw.x - 0.05, 1)} to ${fixed(item.raw.x + 0.05, 1)}`,
      (item) => `${item.dataset.label}: ${percent(item.raw.y)} of ${item.raw.n}`));
  const rows = methods.map((method, m) => {
    const points = of(m);
    return [method, ...Array.from({length: 10}, (_, i) => {
      const p = points.find((q) => Math.floor(10 * q.x) === i);
      return p ? percent(p.y) : "–";
    })];
  });
  return [el("h4", {}, `By depth, at ${length} tokens`), entry.box,
    behind(table(["method", ...Array.from({length: 10}, (_, i) => fixed(i / 10, 1))], rows))];
}

function sections(sweep) {
  const names = [...new Set(sweep.cells.flatMap((c) => (c.tasks || []).map((r) => r.task)))];
  if (!names.length) return [];
  const all = (name) => sweep.cells.map((c) => taskOf(c, name)).filter((r) => r);
  const range = (counts) => [...new Set([Math.min(...counts), Math.max(...counts)])].join(" to ");
  return [el("h2", {}, "Tasks"), ...names.map((name) => {
    const r = all(name)[0];
    if (name === "key-tokens") {
      return el("div", {class: "card"}, el("h3", {}, "Key tokens"),
        el("p", {class: "small soft"}, "LongPPL is the perplexity of those tokens alone that need their far context; they are the same " +
          `for every method. Bands are ± one standard error. ${r.protocol}.`), keyTokens(sweep));
    }
    return el("div", {class: "card"}, el("h3", {}, name),
      el("p", {class: "small soft"}, `${range(all(name).map((x) => x.answers.length))} answers behind ` +
        `${range(all(name).map((x) => x.prompts))} prompts in a cell. Score: ` +
        (number(r.recall) ? "share of the reference answers found in the greedy continuation."
          : "share of answers of which every token is the most probable one.") + ` ${r.protocol}.`),
      againstLength(sweep, name), againstDepth(sweep, name));
  })];
}

// Who left the race of a length, when, and behind whom.
function race(sweep) {
  const left = sweep.cells.filter((c) => c.race_exit);
  if (!left.length) return [];
  return [el("h2", {}, "Who left early"), el("div", {class: "card"},
    el("p", {class: "small soft"}, "Methods of a length are measured in rounds. One leaves when its loss is above another's by " +
      "more than chance explains, with a bound that holds at every round at once; its numbers are those of its windows up to then."),
    table(["length", "method", "round", "windows", "behind", "nats per token", "at least"], left.map((c) => {
      const e = c.race_exit;
      return [grouped(c.length), el("span", {}, swatch(c.method), `${c.method} (${short(c.factor)})`), String(e.round), String(c.windows),
        e.against || "no finite loss", `${fixed(e.difference, 3)} ± ${fixed(e.standard_error, 3)}`, fixed(e.at_least, 3)];
    })))];
}

return {sections, race, scoreOf, taskOf};
})();
