// What is recommended and why, how far methods reach, and the ladder: the first sections of a report.

const Answer = (() => {
const {data, el, number, grouped, fixed, share, short, swatch, table, codeBlock} = Page;

function ppl(v) {
  if (!number(v)) return "–";
  return v < 10 ? v.toFixed(2) : v < 1000 ? v.toFixed(1) : grouped(Math.round(v));
}
const titles = new Map(data.methods.map((m) => [m.name, m.title]));
const isNamed = (method) => titles.has(method);
const usesFactor = new Set(data.methods.filter((m) => m.uses_factor).map((m) => m.name));
const withFactor = (method, factor) =>
  method === "none" ? "no scaling" : usesFactor.has(method) ? `${method}, factor ${short(factor)}` : method;

const noneAt = (sweep, length) => sweep.cells.find((c) => c.method === "none" && c.length === length);

function fact(value, label) {
  return el("div", {}, el("span", {class: "value"}, value), el("span", {class: "label"}, label));
}

function settings(list) {
  const tabs = el("div", {class: "tabs", role: "tablist"});
  const panel = el("div", {role: "tabpanel"});
  list.forEach((s, i) => {
    const tab = el("button", {type: "button", role: "tab", onclick: () => show(i)},
      s.versions ? `${s.engine} ${s.versions}` : s.engine);
    tabs.append(tab);
  });
  function show(chosen) {
    [...tabs.children].forEach((t, i) => t.setAttribute("aria-selected", String(i === chosen)));
    const s = list[chosen];
    panel.replaceChildren();
    if (!s.expressible) panel.append(el("p", {}, el("strong", {}, "Not available. ")));
    if (s.note) panel.append(el("p", {class: "small soft"}, s.note));
    if (s.setting) panel.append(codeBlock(s.setting));
  }
  show(0);
  return el("div", {}, tabs, panel);
}

const nats = (d) => (number(d.nats) ? fixed(d.nats, 3) : "no finite loss") + (number(d.standard_error) ? ` ± ${fixed(d.standard_error, 3)}` : "");
const taskCosts = (costs) => costs.filter((t) => t.difference !== 0).map((t) =>
  el("span", {class: "minor"}, `${t.task} ${t.difference < 0 ? "−" : "+"}${share(Math.abs(t.difference))}` + (t.p_value < 0.05 ? "" : " (noise)")));
const scoreText = (t) => [share(t.score), el("span", {class: "minor"}, `${t.low.toFixed(2)} to ${t.high.toFixed(2)}`)];

const keyText = (k) => (k ? el("td", {}, `${fixed(k.nats, 3)} ± ${fixed(k.standard_error, 3)}`,
  el("span", {class: "minor"}, `${grouped(k.tokens)} in ${k.windows} windows`)) : "–");

// Every method of a length: loss, scores with their intervals, and what follows.
function why(r) {
  const tasks = [...new Set(r.methods.flatMap((m) => m.tasks.map((t) => t.task)))];
  const keys = r.methods.some((m) => m.key_tokens);
  const counts = (name) => r.methods.some((m) => m.tasks.some((t) => t.task === name && t.counts));
  const rows = r.methods.map((m) => [
    el("span", {}, swatch(m.method), withFactor(m.method, m.factor)), ppl(m.perplexity),
    m.difference ? nats(m.difference) : "–", ...(keys ? [keyText(m.key_tokens)] : []),
    ...tasks.map((name) => {
      const t = m.tasks.find((x) => x.task === name);
      return t ? el("td", {class: t.counts && (t.worse || t.below_own) ? "bad" : ""}, ...scoreText(t)) : "–";
    }),
    el("td", {class: "wide"}, el("strong", {}, m.standing), m.reason ? `: ${m.reason}` : "")]);
  const detectable = Math.max(...r.methods.map((m) => (number(m.detectable) && m.standing === "tie" ? m.detectable : 0)));
  return table(["method", "perplexity", "nats per token behind", ...(keys ? ["nats per key token"] : []), ...tasks.map((t) => (counts(t) ? t : `${t} (not considered)`)), "standing"],
    rows, {class: "why", caption: "Scores with Wilson's 95 % intervals." + (detectable > 0
      ? ` Ties: a difference of ${detectable.toFixed(3)} nats per token would have been found four times in five; smaller ones may exist.` : "")});
}

function answerCard(sweep, r, open) {
  const trained = sweep.header.trained_length;
  const none = noneAt(sweep, r.length);
  const facts = el("div", {class: "facts"});
  facts.append(fact(ppl(r.perplexity), "perplexity"));
  if (none && r.method !== "none") facts.append(fact(ppl(none.perplexity), "without scaling"));
  const base = noneAt(sweep, trained);
  if (base) facts.append(fact(ppl(base.perplexity), `at the trained ${grouped(trained)}`));
  for (const t of (r.methods.find((m) => m.standing === "recommended") || {tasks: []}).tasks.filter((t) => t.counts)) {
    facts.append(fact(share(t.score), t.task));
  }
  const heading = !r.judged ? "cannot be judged" : r.method === null ? "no method is usable"
    : r.method === "none" ? "no scaling needed" : withFactor(r.method, r.factor);
  return el("section", {class: "card"},
    el("div", {class: "target"},
      el("span", {class: "use" + (r.method === null ? " none" : "")}, heading),
      el("span", {class: "soft"}, `for ${grouped(r.length)} tokens, ${short(r.length / trained)} times the trained length`)),
    facts, el("p", {}, r.text),
    r.methods.length > 1 ? el("details", open ? {open: ""} : {}, el("summary", {}, `Why: ${r.methods.length} methods at this length`), why(r)) : null,
    r.settings.length ? el("details", open ? {open: ""} : {}, el("summary", {}, "Settings to paste"), settings(r.settings)) : null);
}

function answer(sweep) {
  const out = [el("h2", {}, "Recommendations")];
  if (!sweep.recommendations.length) {
    out.push(el("p", {}, sweep.header.trained_length > 0
      ? "No length beyond the trained one was measured, so there is nothing to recommend."
      : "Nothing is recommended, because the trained length is unknown; give it with --trained N."));
  }
  const open = sweep.recommendations.filter((r) => r.settings.length).at(-1);
  for (const r of sweep.recommendations) out.push(answerCard(sweep, r, r === open));
  out.push(...sweep.tasks.filter((t) => t.reason).map((t) => el("p", {}, t.reason)));
  return out;
}

function reach(sweep) {
  if (!sweep.recommendations.length || !sweep.usable.length) return [];
  const trained = sweep.header.trained_length;
  const longest = Math.max(...sweep.cells.map((c) => c.length));
  const rows = sweep.usable.map((u) => {
    const cost = u.cost_at_trained_length;
    let text = "–";
    if (cost && !number(cost.nats)) text = "no finite loss";
    else if (cost) {
      text = `${(100 * Math.expm1(cost.nats)).toFixed(1)} %`;
      if (cost.nats === 0) text = "nothing";
      else if (number(cost.standard_error)) {
        text += ` ± ${(100 * Math.exp(cost.nats) * cost.standard_error).toFixed(1)}` + (cost.outside_noise ? "" : " (noise)");
      }
    }
    const reached = u.longest_usable === 0 ? "nowhere" : grouped(u.longest_usable) +
      (u.longest_usable === longest ? " or more" : u.longest_usable === trained ? " (no gain)" : "");
    return [[swatch(u.method), u.method], reached,
            !usesFactor.has(u.method) || u.factor === 1 ? "–" : short(u.factor), el("td", {}, text, ...taskCosts(u.task_costs))];
  });
  return [el("h2", {}, "Longest usable length of each method"), el("div", {class: "card"},
    table(["method", "usable up to", "with factor", `cost at ${grouped(trained)}`], rows, {class: "wrap"}),
    el("p", {class: "small soft"}, sweep.rules + ` The cost is the increase of perplexity at ${grouped(trained)} tokens with that ` +
      "factor, relative to no scaling, and the change of each task's score there."))];
}

function effective(sweep) {
  const methods = sweep.effective_length;
  if (!methods.length) return [];
  const text = (e) => [e.length ? grouped(e.length) : "–", el("span", {class: "minor"},
    `${e.at_least ? grouped(e.at_least) : "–"} to ${e.at_most ? grouped(e.at_most) : "–"}${e.gap ? ", with a gap" : ""}`)];
  const first = methods[0];
  const lengths = [...new Set(methods.flatMap((m) => m.scores.map((s) => s.length)))].sort((a, b) => a - b);
  const rows = methods.map((m) => [el("span", {}, swatch(m.method), m.method), el("td", {}, ...text(m.ruler)), el("td", {}, ...text(m.own)),
    fixed(m.wavg_inc, 3), fixed(m.wavg_dec, 3), ...lengths.map((length) => {
      const s = m.scores.find((x) => x.length === length);
      return s ? share(s.score) : "–";
    })]);
  return [el("h2", {}, "Effective length"), el("div", {class: "card"},
    table(["method", "by RULER's 0.856", `by 0.85 × own (${first.own.threshold.toFixed(2)})`, "wAvg inc", "wAvg dec",
      ...lengths.map((l) => `at ${grouped(l)}`)], rows),
    el("p", {class: "small soft"}, `Tokens up to which the mean score of ${first.tasks.join(", ")} is at least the threshold; below it the lengths between ` +
      `which it lies (5 % each way, from the answers of each task in a cell). ` +
      "Up to the trained length scores are those without scaling, beyond with the factor that is best there. wAvg: the mean over lengths, weighted towards long (inc) or short text (dec)."))];
}

function ladder(sweep) {
  const l = sweep.ladder;
  if (!l) return [];
  const name = (factor) => (factor === 1 ? "no scaling" : short(factor));
  const rows = l.rungs.map((r) => [`${grouped(r.above + 1)} to ${grouped(r.up_to)}`, el("td", {class: "best"}, name(r.factor)), ppl(r.perplexity),
    name(r.best_factor), r.behind_best ? nats(r.behind_best) : "–", r.measured.map(name).join(", "),
    r.static_cost ? el("td", {}, nats(r.static_cost), ...taskCosts(r.static_task_costs)) : "–"]);
  const even = l.break_even.map((b) => [short(b.factor), b.length ? grouped(b.length) : "nowhere significantly"]);
  return [el("h2", {}, "Ladder"), el("div", {class: "card"}, el("p", {}, l.text),
    table(["tokens", "factor", "perplexity", "best factor", "nats behind it", "measured", `cost of ${short(l.largest)} for all text`], rows,
      {caption: `The smallest factor of ${l.method} that is not significantly worse than the best measured at each length.`}),
    table(["factor", "beats no scaling from"], even),
    l.settings.length ? el("details", {}, el("summary", {}, "Settings to paste"), settings(l.settings)) : null)];
}

const sections = (sweep) => [answer, ladder, reach, effective].flatMap((section) => section(sweep));
return {sections, ppl, withFactor, usesFactor, titles, isNamed, noneAt};
})();
