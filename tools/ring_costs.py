"""The ring of src/ranks and the ranked model of src/model, counted: the deal, the work of each pair of ranks, what travels,
what a rank holds, and when each rank is done. tools/scale_model.py prints it."""

import dataclasses
import functools
import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
BLOCK, CHUNK, LOGITS = 64, 512, 8 << 20  # kRotatedBlock, Decoder::kChunkTokens, kLogitsChunk
MOST_TOKENS, MOST_RANKS = (1 << 31) - 1, 8192


class Refused(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class Shape:
    """A decoder with gated feed-forward layers and rotary positions."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    width: int
    vocab: int
    tied: bool

    @property
    def encode(self):
        """Weights in front of attention: they meet every token."""
        return self.hidden * (self.heads + 2 * self.kv_heads) * self.head_dim

    @property
    def finish(self):
        """Weights behind it: in the last layer they meet what is scored alone."""
        return self.heads * self.head_dim * self.hidden + 3 * self.hidden * self.width

    @property
    def weights(self):
        norms = (2 * self.layers + 1) * self.hidden
        return self.layers * (self.encode + self.finish) + norms + self.hidden * self.vocab * (1 if self.tied else 2)

    @property
    def pair_flops(self):
        """Of a query and a key that it sees: two products."""
        return 4 * self.heads * self.head_dim


# SmolLM2-135M and Llama 3.1 8B and 70B by their published configurations.
SHAPES = {
    "135m": Shape(30, 576, 9, 3, 64, 1536, 49152, True),
    "8b": Shape(32, 4096, 32, 8, 128, 14336, 128256, False),
    "70b": Shape(80, 8192, 64, 8, 128, 28672, 128256, False),
}


def read_shape(name):
    if name in SHAPES:
        return SHAPES[name]
    path = ROOT / "models" / "config.json" if name == "embedded" else pathlib.Path(name)
    try:
        c = json.loads(path.read_text(encoding="utf-8"))
        if c["model_type"] not in ("llama", "mistral") or c.get("sliding_window"):
            raise Refused(f"{name}: a model_type of {c['model_type']}; expected llama, or mistral without a window")
        heads = c["num_attention_heads"]
        shape = Shape(
            c["num_hidden_layers"], c["hidden_size"], heads, c.get("num_key_value_heads") or heads,
            c.get("head_dim") or c["hidden_size"] // heads, c["intermediate_size"], c["vocab_size"],
            c.get("tie_word_embeddings", False),
        )  # fmt: skip
        if not all(isinstance(n, int) and 0 < n < 1 << 24 for n in dataclasses.astuple(shape)[:-1]):
            raise Refused(f"{name}: sizes of 1 or more are expected, got {shape}")
        return shape
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise Refused(f"{name}: expected {', '.join(SHAPES)}, embedded or a config.json: {error!r}") from error


@dataclasses.dataclass(frozen=True)
class Deal:
    """Deal of src/ranks/ring.cc."""

    tokens: int
    ranks: int

    def __post_init__(self):
        if not 1 <= self.tokens <= MOST_TOKENS or not 1 <= self.ranks <= MOST_RANKS:
            raise Refused(f"expected 1 to {MOST_TOKENS} tokens on 1 to {MOST_RANKS} ranks, got {self.tokens} on {self.ranks}")

    @functools.cached_property
    def run_tokens(self):
        return -(-self.tokens // (2 * self.ranks * BLOCK)) * BLOCK

    @property
    def alike(self):
        """Whether all runs are full, so that every rank does the same."""
        return self.tokens == 2 * self.ranks * self.run_tokens

    def run(self, index):
        return min(self.tokens, index * self.run_tokens), min(self.tokens, (index + 1) * self.run_tokens)

    def runs_of(self, rank):
        return self.run(rank), self.run(2 * self.ranks - 1 - rank)

    def tokens_of(self, rank, first=0):
        """Those from position `first` on."""
        return sum(max(0, end - max(begin, first)) for begin, end in self.runs_of(rank))

    def pairs(self, rank, owner, first=0):
        """Queries of `rank` from position `first` on, each with the keys of `owner` that it sees."""
        if self.tokens_of(rank, first) == 0:
            return 0
        return sum(causal(max(begin, first), end, *keys) for begin, end in self.runs_of(rank) for keys in self.runs_of(owner))


def causal(begin, end, first_key, end_key):
    """Pairs of queries begin .. end - 1 and keys first_key .. end_key - 1, no key behind its query."""
    all_seen = max(0, end - max(begin, end_key)) * (end_key - first_key)
    low, high = max(begin, first_key), min(end, end_key)
    return all_seen + sum_to(high - first_key) - sum_to(low - first_key) if high > low else all_seen


def sum_to(n):
    return n * (n + 1) // 2


def padded(dim):
    return -(-dim // 16) * 16


def cache_bytes(shape, kv, tokens):
    """KvCache::bytes() of a layer; all of it travels."""
    dim, slots = shape.head_dim, -(-tokens // BLOCK) * BLOCK
    if kv == "q8_0":
        if dim % 32:
            raise Refused(f"q8_0 holds blocks of 32 elements, and a head has {dim}")
        return shape.kv_heads * (slots + tokens) * (dim + dim // 32 * 2)
    if kv == "bf16":
        return shape.kv_heads * 4 * (slots * ((dim + 1) // 2) + padded(dim) * ((tokens + 1) // 2))
    return shape.kv_heads * 4 * (slots * dim + tokens * padded(dim))


def memory_parts(shape, deal, setting, process):
    """Bytes of the rank with most tokens. One process alone keeps the keys of all layers, and of the rest a chunk."""
    ranked, kv = deal.ranks > 1, setting.kv
    tokens = max(deal.tokens_of(r) for r in range(deal.ranks))
    row = shape.heads * shape.head_dim
    keys = 2 * cache_bytes(shape, kv, deal.run_tokens) if ranked else shape.layers * cache_bytes(shape, kv, tokens)
    chunk = 2 * shape.hidden + 2 * row + 2 * shape.kv_heads * shape.head_dim + 3 * shape.width
    return {
        "weights": shape.weights * setting.weight_bits // 8,
        "file": setting.file_bytes if ranked else 0,
        "residual": tokens * shape.hidden * 4 if ranked else 0,
        "queries": tokens * row * 4 if ranked else 0,
        "sums": tokens * shape.heads * (padded(shape.head_dim) + 3) * 4 if ranked else 0,
        "keys": keys,
        "coming": keys if ranked else 0,
        "angles": tokens * shape.head_dim * 4,
        "chunk": min(CHUNK, deal.run_tokens) * chunk * 4,
        "logits": max(1, min(CHUNK, LOGITS // shape.vocab)) * shape.vocab * 4,
        "process": process,
    }


def go_round(times, work, hop):
    """When each rank leaves the ring. times: when it enters; work[step][rank]: its seconds of scoring. A block is on its way
    from when sender and receiver have begun the step, and both wait for it at the end. Ranks that are alike may be one."""
    n = len(times)
    for step, seconds in enumerate(work):
        ended = [t + s for t, s in zip(times, seconds)]
        if step + 1 < len(work):
            arrived = [max(t, times[r - 1]) + hop for r, t in enumerate(times)]
            ended = [max(e, arrived[r], arrived[(r + 1) % n]) for r, e in enumerate(ended)]
        times = ended
    return times


class Layer:
    """Seconds of `ranks` in a layer where queries from position `first` on are wanted."""

    def __init__(self, shape, deal, rates, first, ranks):
        linear, attention = rates
        pair = shape.pair_flops / attention
        self.encode = [2 * shape.encode * deal.tokens_of(r) / linear for r in ranks]
        self.finish = [2 * shape.finish * deal.tokens_of(r, first) / linear for r in ranks]
        self.work = [[pair * deal.pairs(r, (r - step) % deal.ranks, first) for r in ranks] for step in range(deal.ranks)]
        self.busy = [e + sum(w) + f for e, w, f in zip(self.encode, zip(*self.work), self.finish)]

    def run(self, times, hop):
        times = go_round([t + e for t, e in zip(times, self.encode)], self.work, hop)
        return [t + f for t, f in zip(times, self.finish)]

    def repeat(self, count, times, hop):
        """Once a layer leaves the ranks as far apart as it met them, so does each that follows."""
        for done in range(count):
            after = self.run(times, hop)
            spent = [a - t for a, t in zip(after, times)]
            times = after
            if max(spent) - min(spent) <= 1e-12 * max(spent):
                return [t + (count - 1 - done) * s for t, s in zip(times, spent)]
        return times


@dataclasses.dataclass(frozen=True)
class Setting:
    kv: str = "float32"
    weight_bits: int = 32
    scored: int | None = None  # the last tokens; None: all
    cores: float | None = None  # of all ranks together; None: one or more each
    file_bytes: int = 0  # of the mapped file, whose pages stay with ranks until the system wants them back


def at_size(rates, size):
    """The rate of the nearest size, of a head or a hidden state, that was measured."""
    return rates[min(rates, key=lambda measured: abs(int(measured) - size))]


def rates_of(shape, ranks, constants, setting):
    share = min(1, setting.cores / ranks) if setting.cores else 1
    linear = at_size(constants["linear_flops"], shape.hidden)
    return linear * share, at_size(constants["attention_flops"], shape.head_dim) * share


def run_model(shape, deal, constants, setting, first):
    """(seconds, share of waiting, the longest step with keys of another rank)"""
    rates = rates_of(shape, deal.ranks, constants, setting)
    everyone = range(deal.ranks)
    ranks = range(1) if deal.alike else everyone
    hop = hop_seconds(shape, deal, constants, setting)
    layer, last = Layer(shape, deal, rates, 0, ranks), Layer(shape, deal, rates, first, everyone if first else ranks)
    times = layer.repeat(shape.layers - 1, [0.0] * len(ranks), hop)
    times = last.run(times * (len(last.busy) // len(ranks)), hop)
    head = [2 * shape.hidden * shape.vocab * deal.tokens_of(r, first) / rates[0] for r in range(len(times))]
    seconds = max(t + h for t, h in zip(times, head))
    busy = (shape.layers - 1) * sum(layer.busy) / len(ranks) + (sum(last.busy) + sum(head)) / len(times)
    return seconds, max(0.0, 1 - busy / seconds), max(layer.work[-1])


def hop_seconds(shape, deal, constants, setting):
    return 2 * cache_bytes(shape, setting.kv, deal.run_tokens) / constants["hop_bytes_per_s"] + constants["hop_seconds"]


def simulate(shape, tokens, ranks, constants, setting):
    deal = Deal(tokens, ranks)
    used = -(-tokens // deal.run_tokens)
    if used < ranks:
        raise Refused(f"{tokens} tokens are {used} runs of {deal.run_tokens}: {ranks - used} of {ranks} ranks have none")
    first = tokens - (tokens if setting.scored is None else setting.scored)
    if not 0 <= first < tokens:
        raise Refused(f"expected 1 to {tokens} scored tokens, got {setting.scored}")
    seconds, waiting, step = run_model(shape, deal, constants, setting, first)
    memory = memory_parts(shape, deal, setting, constants["process_bytes"])
    block = 2 * cache_bytes(shape, setting.kv, deal.run_tokens) if ranks > 1 else 0
    in_front = shape.layers * shape.encode + (shape.layers - 1) * shape.finish
    pairs = (shape.layers - 1) * sum_to(tokens) + causal(first, tokens, 0, tokens)
    return {
        "tokens": tokens, "ranks": ranks, "rank_tokens": max(deal.tokens_of(r) for r in range(ranks)),
        "seconds": seconds, "waiting": waiting,
        "hop_share": hop_seconds(shape, deal, constants, setting) / step if ranks > 1 else 0.0,
        "linear_flop": 2 * (in_front * tokens + (shape.finish + shape.hidden * shape.vocab) * (tokens - first)),
        "attention_flop": shape.pair_flops * pairs,
        "hop_bytes": block, "sent_bytes": block * (ranks - 1) * shape.layers,
        "memory": memory, "memory_bytes": sum(memory.values()),
    }  # fmt: skip


def hidden_from(shape, constants, kv):
    """Tokens of a rank from which a hop takes no longer than scoring its block, which is half a square of them."""
    flops = shape.pair_flops / 2 / at_size(constants["attention_flops"], shape.head_dim)
    each = cache_bytes(shape, kv, BLOCK) / BLOCK / constants["hop_bytes_per_s"]
    return (each + (each * each + 4 * flops * constants["hop_seconds"]) ** 0.5) / (2 * flops)
