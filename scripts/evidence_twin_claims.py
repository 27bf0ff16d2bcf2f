"""The claim of docs/evidence on hierarchical positions of a masked language model: from the rows of scripts/evidence_twin.py to the page."""

import math

from evidence_frame import ROWS, graded, overall, read, section, stated_table, table
from svg_panels import Panel

TWIN = ROWS.with_name("twin.jsonl")
TITLE = "Hierarchical decomposition carries a masked language model past its table"
SU = "Su 2020 ([kexue.fm/archives/7947](https://kexue.fm/archives/7947))"
WORKS = 1.25  # times the pseudo-perplexity at the trained length, as the claim of NTK-aware asks for
BACK = 1.05  # times, after tuning
SAME = 1e-5  # nats
KINDS = {"hierarchical": "hierarchical", "random": "random new rows"}


class Twin:
    """Rows by model, steps of tuning and length."""

    def __init__(self, header, rows):
        self.trained, self.tuned, self.steps = header["trained_length"], header["tuned_length"], header["tuning"]["steps"]
        self.last = self.steps[-1]
        self.of = {(r["model"], r["tuning_steps"], r["length"]): r for r in rows if r["what"] == "twin"}
        self.lengths = sorted({length for _, _, length in self.of})
        self.models = [(kind, steps) for steps in (0, *self.steps) for kind in KINDS]
        self.blocks = {(r["model"], r["tuning_steps"]): r["pseudo_perplexities"] for r in rows if r["what"] == "blocks"}
        self.smaller = {(r["alpha"], r["length"]): r["pseudo_perplexity"] for r in rows if r["what"] == "alpha"}
        wanted = {(*model, length) for model in self.models for length in self.lengths}
        if wanted != self.of.keys() or not {self.trained, self.tuned} <= set(self.lengths):
            raise SystemExit(f"rows of the twin: expected each of {self.models} at the lengths {self.lengths}")
        (self.unigram,) = (r["perplexity"] for r in rows if r["what"] == "unigram")
        ((self.cosine, self.moved),) = ((r["cosine_with_sinusoids"], r["moved"]) for r in rows if r["what"] == "rows")
        self.longer = self.lengths[self.lengths.index(self.trained) + 1 :]
        self.own = self.at("hierarchical", 0, self.trained)

    def at(self, kind, steps, length):
        return self.of[kind, steps, length]["pseudo_perplexity"]

    def ratios(self, kind, steps, lengths):
        """In units of the untuned model's at its trained length."""
        return [self.at(kind, steps, length) / self.own for length in lengths]

    def better(self, steps, lengths):
        """At how many lengths hierarchical positions are at least as good as random rows."""
        return sum(self.at("hierarchical", steps, n) <= self.at("random", steps, n) for n in lengths)

    def recovered(self, kind):
        """How many blocks behind the first are as good as it, after tuning."""
        first, *new = self.blocks[kind, self.last]
        return sum(x <= WORKS * first for x in new)


def listed(values):
    return ", ".join(f"{v:.2f}" for v in values)


def statements(twin):
    """(what is stated, where, what was measured, verdict)."""
    same = [twin.of[kind, 0, twin.trained]["mean_nll"] for kind in KINDS]
    longer, within = twin.longer, [n for n in twin.longer if n <= twin.tuned]
    names = ", ".join(map(str, longer))
    before = twin.ratios("hierarchical", 0, longer)
    works = sum(r <= WORKS for r in before)
    yield (
        f"Within the table, {twin.trained} tokens, nothing changes",
        SU,
        f"losses differ by {abs(same[0] - same[1]):.0g} nats from those with the trained rows themselves",
        graded(abs(same[0] - same[1]) <= SAME, 1),
    )
    yield (
        f"Without tuning it reads longer texts, {names} tokens",
        "[B], 1.1; the same",
        f"{listed(before)} times the pseudo-perplexity at {twin.trained} tokens (asked for: {WORKS} at most)",
        graded(works, len(longer)),
    )
    yield (
        "and better than new rows that are random",
        "the same",
        f"these {listed(twin.ratios('random', 0, longer))} times; hierarchical rows better at {twin.better(0, longer)} of {len(longer)} lengths",
        graded(twin.better(0, longer), len(longer)),
    )
    tuned = twin.ratios("hierarchical", twin.last, within)
    yield (
        f"A brief tuning at {twin.tuned} tokens brings longer texts, up to these, back to where {twin.trained} were",
        "the same",
        f"after {twin.last} steps {listed(tuned)} times the pseudo-perplexity at {twin.trained} tokens before (asked for: {BACK} at most)",
        graded(sum(r <= BACK for r in tuned), len(within)),
    )
    yield (
        "and at least as good as new rows that are tuned as much",
        "the same",
        f"these {listed(twin.ratios('random', twin.last, within))} times; hierarchical rows at least as good at {twin.better(twin.last, within)} of {len(within)} lengths",
        graded(twin.better(twin.last, within), len(within)),
    )


def panels(twin):
    lines = [
        (f"{kind}, {steps} steps", [(n, twin.at(kind, steps, n)) for n in twin.lengths], colour)
        for (kind, steps), colour in zip(twin.models, ("c0", "c1", "c2", "c3", "c4", "rest"))
    ]
    return [Panel("Pseudo-perplexity", "tokens", lines, x_log=True, y_log=True)]


def hierarchical(header, rows):
    twin = Twin(header, rows)
    stated = list(statements(twin))
    training, tuning = header["training"], header["tuning"]
    error = max(r["standard_error"] for r in twin.of.values())
    beyond = [n for n in twin.lengths if n > twin.tuned]
    text = [
        "A table of n trained rows is read as digits in base n, so that it reaches n² positions of which the first n keep their rows",
        "([hierarchical decomposition](../absolute/methods/hierarchical.md)). Here it is that of a masked language model of the [zoo](../zoo.md) (`learned`, bidirectional), trained at",
        f"{twin.trained} tokens ({training['steps']} steps, {training['masked']:.0%} of the tokens masked); its rows began as sinusoids and stay close to them (cosine {twin.cosine:.2f}), two heads began by looking at the neighbours:",
        f"with rows and heads that began at random it did not learn in so few steps that order matters. α is {header['alpha']}. Beside it the same table with new rows behind the trained ones, random with the mean and standard deviation of these.",
        f"Both are tuned by the same batches of {tuning['rows']} rows of {twin.tuned} tokens, all tensors, by the [recipe](../zoo.md#training) of training at a rate of {tuning['rate']}.",
        "",
        f"[Pseudo-perplexity](../tasks/pseudo-perplexity.md) of the same {header['scored_per_span']} tokens of each of {header['spans']} spans of held-out text at every length. With the frequencies of tokens alone the text has {twin.unigram:.0f}.",
        "",
        *table(
            ["positions", *(f"{n} tokens" for n in twin.lengths)],
            [
                [
                    f"{KINDS[kind]}, {f'{steps} steps of tuning' if steps else 'not tuned'}",
                    *(f"{twin.at(kind, steps, n):.1f}" for n in twin.lengths),
                ]
                for kind, steps in twin.models
            ]
            + [
                [f"hierarchical, α {alpha}, not tuned", *(f"{twin.smaller[alpha, n]:.1f}" for n in twin.lengths)]
                for alpha in sorted({a for a, _ in twin.smaller})
            ],
        ),
        *stated_table(stated),
        f"Where it is lost, in windows of {twin.tuned} tokens: pseudo-perplexity of each block of {twin.trained} tokens, whose rows have one p_i in common.",
        "",
        *table(
            ["positions", *(f"block {i}" for i in range(twin.tuned // twin.trained))],
            [
                [
                    f"{KINDS[kind]}, {f'{steps} steps of tuning' if steps else 'not tuned'}",
                    *(f"{v:.1f}" for v in twin.blocks[kind, steps]),
                ]
                for kind, steps in twin.models
            ],
        ),
        f"Standard errors over spans are up to {math.expm1(error):.0%}, for the most part the same in a column, whose tokens are the same.",
        *(
            [f"At {', '.join(map(str, beyond))} tokens nothing was tuned; the last two statements leave them out."]
            if beyond
            else []
        ),
        f"Behind the table a row is moved by α / (1 - α) (p_i - p_0), on average {twin.moved:.2f} times its norm, which training has not shown the model: a smaller α costs less before tuning.",
        f"After tuning {twin.recovered('hierarchical')} of {len(twin.blocks['random', 0]) - 1} new blocks have at most {WORKS} times the pseudo-perplexity of block 0 with hierarchical rows, {twin.recovered('random')} with random ones: each row of a",
        "hierarchical table is trained at several places of every text, a random one at one.",
        "One small model, whose rows are no BERT's. BERT's own head was not measured: of the packages of PyPI that were looked at none ships its weights.",
        "",
    ]
    source = f"[B], 1.1; {SU}."
    return section(TITLE, source, overall(stated), text, header["command"], "twin"), {"twin": panels(twin)}


def of_twin():
    """Parts of the page, as scripts/evidence.py wants them."""
    return [hierarchical(*read(TWIN))]
