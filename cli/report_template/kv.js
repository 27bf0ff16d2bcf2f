// What types of the KV cache cost: a section of the report of a sweep that measured several.

const Kv = (() => {
const {el, number, grouped, fixed, share, short, style, table, behind, codeBlock, chartBox, logAxis, linearAxis, lineDataset,
  band, chartConfig} = Page;

const same = (a, b) => a.method === b.method && a.factor === b.factor && a.length === b.length;
const label = (c) => (c.factor === 1 ? c.method : `${c.method} (factor ${short(c.factor)})`);
const signed = (v, digits) => (v < 0 ? "−" : "+") + Math.abs(v).toFixed(digits);
const loss = (d) => `${signed(d.nats, 5)}${number(d.standard_error) ? ` ± ${d.standard_error.toFixed(5)}` : ""}`;

// One chart for a type: its costs against length, a line for each method, at the factor of its column.
function chart(sweep, kv) {
  const {methods, columns} = sweep.grid, base = sweep.kv.recommended_on;
  const of = (m) => columns.map((_, c) => sweep.cells[sweep.grid.cells[m][c]])
    .map((cell) => cell && sweep.kv.costs.find((x) => x.kv === kv && same(x, cell)))
    .filter((x) => x && number(x.loss.nats))
    .map((x) => {
      const error = number(x.loss.standard_error) ? x.loss.standard_error : 0;
      return {x: x.length, y: x.loss.nats, low: x.loss.nats - error, high: x.loss.nats + error, cost: x};
    });
  return chartBox(`Loss of a KV cache of ${kv} beyond ${base} against length for each method`, () => {
    const xs = [...new Set(methods.flatMap((_, m) => of(m).map((p) => p.x)))].sort((a, b) => a - b);
    const datasets = methods.flatMap((method, m) => {
      const points = of(m);
      return points.length ? [lineDataset(method, points, style(method), {}), ...band(points, style(method), method)] : [];
    });
    return chartConfig(datasets, {x: logAxis("length in tokens", xs, xs),
      y: linearAxis(`loss with ${kv} minus with ${base}, nats per token`, {})}, [],
      (item) => `${grouped(item.raw.x)} tokens`,
      (item) => `${item.dataset.label}: ${loss(item.raw.cost.loss)}, keys ${item.raw.cost.kv_keys}`);
  });
}

function numbers(sweep) {
  const {types, costs, cells, recommended_on: base} = sweep.kv;
  const tasks = [...new Set(costs.flatMap((c) => c.tasks.map((t) => t.task)))];
  const score = (cell, name) => {
    const r = cell.tasks.find((t) => t.task === name);
    return r ? share(number(r.recall) ? r.recall : r.exact) : "–";
  };
  const rows = sweep.cells.filter((cell) => cells.some((c) => same(c, cell))).map((cell) => [label(cell), grouped(cell.length),
    el("td", {}, fixed(cell.perplexity, 3), tasks.map((t) => el("span", {class: "minor"}, `${t} ${score(cell, t)}`))),
    ...types.map((kv) => {
      const other = cells.find((c) => c.kv === kv && same(c, cell)), cost = costs.find((c) => c.kv === kv && same(c, cell));
      if (!other) return "–";
      return el("td", {title: `keys ${other.kv_keys}`}, fixed(other.perplexity, 3),
        cost ? el("span", {class: "minor"}, `${loss(cost.loss)} nats`) : null,
        tasks.map((t) => el("span", {class: "minor"}, `${t} ${score(other, t)}`)));
    })]);
  return table(["method", "tokens", base, ...types], rows, {caption:
    `Perplexity and scores of tasks with each type, and the difference of loss to ${base} in nats per token, window by ` +
    "window, ± one standard error."});
}

function settings(kv) {
  return kv.settings.map((s) => el("div", {}, el("p", {class: "small"}, `${s.kv}, ${s.engine}${s.setting ? "" : ": no such type"}`),
    s.setting ? codeBlock(s.setting) : null, s.note ? el("p", {class: "small soft"}, s.note) : null));
}

function sections(sweep) {
  if (!sweep.kv) return [];
  return [el("h2", {}, "What the KV cache costs"), el("div", {class: "card"}, el("p", {}, sweep.kv.text),
    sweep.kv.types.map((kv) => chart(sweep, kv).box),
    el("p", {class: "small soft"}, "Differences under one method, so that they hold what the cache costs and nothing of the method: where " +
      "lines lie on each other, the cache's loss does not depend on the method. Bands are ± one standard error. " +
      `Everything else on this page was measured with ${sweep.kv.recommended_on}.`),
    behind(numbers(sweep)),
    el("details", {}, el("summary", {}, "Settings of engines"), settings(sweep.kv)))];
}

return {sections};
})();
