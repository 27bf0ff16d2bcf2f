"""A model of the zoo in float64, typed again from the papers: `plain`, and what encodings put in the place of its parts:

    embed(w, x, ids)           embeddings in front of the layers
    product(w, at, q, k)       q . k of all pairs [batch, heads, n, n]
    content(w, at, q, k)       what is added to q . k and scaled with it
    bias(w, at, q, k, h)       what is added to the scores; h: the layer's normed input
    values(w, at, weights)     what is added to the sums of values
    temperature                factors of q . k by the query's position
    terms                      that share the scale (terms head_dim)^-0.5
    back(sign)                 rotates values, and the output by -1

w: the tensors by name; at: the layer's prefix in front of "bias." and "rotation.".
"""

import functools
import math

import torch
from zoo_models import DIM, HEADS, LAYERS, TRAINED, WIDTH

N = 3 * TRAINED
AT = torch.arange(N).double()
D = AT[:, None] - AT  # of query and key


def plain(w, ids, twin=False, embed=None, product=None, content=None, bias=None, temperature=None, terms=1, values=None, back=None):
    """The logits of a model without encoding, where nothing is put in its place."""
    n = ids.shape[1]

    def norm(x, name):
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * w[name]

    words = w.get("model.embed_tokens.weight")
    x = words[ids] if words is not None else None
    x = embed(w, x, ids) if embed else x
    ahead = torch.ones(n, n, dtype=torch.bool).triu(1) & (not twin)
    for i in range(LAYERS):
        at, own = f"model.layers.{i}.", f"model.layers.{i}.self_attn."
        h = norm(x, at + "input_layernorm.weight")
        q, k, v = ((h @ w[f"{own}{p}_proj.weight"].t()).unflatten(-1, (-1, DIM)).transpose(1, 2) for p in "qkv")
        k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        s = q @ k.transpose(-1, -2) if product is None else product(w, own, q, k)[..., :n, :n]
        s = s if content is None else s + content(w, own, q, k)
        s = s * (terms * DIM) ** -0.5 * (1.0 if temperature is None else temperature[:n, None])
        s = s if bias is None else s + bias(w, own, q, k, h)
        v = back(1)(v) if back else v
        a = s.masked_fill(ahead, -torch.inf).softmax(-1)
        o = a @ v if values is None else a @ v + values(w, own, a)
        o = back(-1)(o) if back else o
        x = x + o.transpose(1, 2).flatten(-2) @ w[own + "o_proj.weight"].t()
        h = norm(x, at + "post_attention_layernorm.weight")
        g = h @ w[at + "mlp.gate_proj.weight"].t()
        x = x + (g * g.sigmoid() * (h @ w[at + "mlp.up_proj.weight"].t())) @ w[at + "mlp.down_proj.weight"].t()
    return norm(x, "model.norm.weight") @ (w["lm_head.weight"] if words is None else words).t()


# In front of the layers.


def sinusoids(positions, dim, interleaved):
    angle = positions.double()[..., None] * 10000.0 ** (-torch.arange(0, dim, 2).double() / dim)
    return torch.stack((angle.sin(), angle.cos()), -1).flatten(-2) if interleaved else torch.cat((angle.sin(), angle.cos()), -1)


def adds(rows):
    """Rows of all positions, added."""
    return lambda w, x, ids: x + rows(w)[: x.shape[1]]


def table(w):
    return w["model.positions.table"]


def hierarchical(w, alpha=0.3):
    u = (table(w) - alpha * table(w)[0]) / (1 - alpha)
    return alpha * u[torch.arange(N) // len(u)] + (1 - alpha) * u[torch.arange(N) % len(u)]


def digits(base, count, factor):
    def rows(w):
        value = AT / factor
        columns = [(value / base**i).floor() % base for i in range(count - 1, 0, -1)] + [value % base]
        return torch.stack(columns, -1) @ w["model.positions.weight"].t()

    return rows


def floater(spacing, substeps):
    """Classical Runge-Kutta steps along p' = v tanh(w p + u t + b) + c."""

    def rows(w):
        f = {name: w[f"model.positions.{name}"] for name in ("start", "w", "u", "b", "v", "c")}

        def slope(t, p):
            return f["v"] @ torch.tanh(f["w"] @ p + f["u"] * t + f["b"]) + f["c"]

        p, step, path = f["start"], spacing / substeps, [f["start"]]
        for n in range((N - 1) * substeps):
            t = n * step
            one = slope(t, p)
            two = slope(t + step / 2, p + step / 2 * one)
            three = slope(t + step / 2, p + step / 2 * two)
            p = p + step / 6 * (one + 2 * two + 2 * three + slope(t + step, p + step * three))
            path += [p] if (n + 1) % substeps == 0 else []
        return torch.stack(path)

    return rows


def cell(inputs, state, weight, bias):
    """One step of an RNN or GRU: `inputs` are those of its gates, by weight and bias already."""
    hidden = state @ weight.t() + bias
    if hidden.shape == state.shape:
        return torch.tanh(inputs + hidden)
    (r, z, n), (hr, hz, hn) = inputs.chunk(3, -1), hidden.chunk(3, -1)
    keep = torch.sigmoid(z + hz)
    return (1 - keep) * torch.tanh(n + torch.sigmoid(r + hr) * hn) + keep * state


def recurrent_rows(w):
    weight, inputs, bias = (w[f"model.positions.{name}"] for name in ("weight", "input_bias", "hidden_bias"))
    rows = [w["model.positions.start"]]
    while len(rows) < N:
        rows.append(cell(inputs, rows[-1], weight, bias))
    return torch.stack(rows)


def recurrent_layer(w, x, ids):
    wi, wh, bi, bh = (w[f"model.recurrent_layer.{name}"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    states = [torch.zeros_like(x[:, 0])]
    for t in range(x.shape[1]):
        states.append(cell(x[:, t] @ wi.t() + bi, states[-1], wh, bh))
    return torch.stack(states[1:], 1)


def convolution(groups, gelu=False, residual=True, centred=False):
    def embed(w, x, ids):
        v, n = w["model.positions.v"], x.shape[1]
        taps, y = v.shape[-1], w["model.positions.bias"].expand(x.shape).clone()
        first = taps // 2 if centred else taps - 1
        group = torch.arange(WIDTH) // (WIDTH // groups) * (WIDTH // groups)
        for t in range(n):
            for tap in range(taps):
                if 0 <= t + tap - first < n:
                    for i in range(WIDTH // groups):
                        y[:, t] += v[:, i, tap] * x[:, t + tap - first, group + i]
        y = y * 0.5 * (1 + torch.erf(y / math.sqrt(2))) if gelu else y
        return x + y if residual else y

    return embed


def complex_order(w, x, ids):
    amplitude, frequency, phase = (w[f"model.positions.{name}"] for name in ("amplitude", "frequency", "phase"))
    angle = frequency[ids] * AT[: ids.shape[1], None] + phase[ids]
    return torch.cat((amplitude[ids] * angle.cos(), amplitude[ids] * angle.sin()), -1)


# Rotations.


def frequencies(base=10000.0, kept=DIM // 2, factor=1.0):
    f = base ** (-torch.arange(0, DIM, 2).double() / DIM) / factor
    return torch.where(torch.arange(DIM // 2) < kept, f, 0.0)


def relative(f, distance=D, decay=None):
    """Re(sum over pairs of q conj(k) e^(i f distance)): all that a rotation does to a score, seen from the relative position."""

    def product(w, at, q, k):
        n = q.shape[2]
        (a, b), (c, d) = (x[:, :, :, None] for x in q.chunk(2, -1)), (x[:, :, None] for x in k.chunk(2, -1))
        angle = distance[:n, :n, None] * f
        terms = (a * c + b * d) * angle.cos() - (b * c - a * d) * angle.sin()
        return (terms * (1.0 if decay is None else decay[:n, :n])).sum(-1)

    return product


def xpos(scale_base, gamma):
    zeta = (torch.arange(0, DIM, 2).double() / DIM + gamma) / (1 + gamma)
    return zeta ** (D[..., None] / scale_base)


def pope(w, at, q, k):
    n, f = q.shape[2], 10000.0 ** (-torch.arange(DIM).double() / DIM)
    phase = w[at + "rotation.phase"].clamp(-2 * math.pi, 0).repeat_interleave(2, 0)
    angle = -D[:n, :n, None] * f + phase[:, None, None]
    return ((1 + q.exp()).log()[:, :, :, None] * (1 + k.exp()).log()[:, :, None] * angle.cos()).sum(-1)


def fope_turned(base):
    f = frequencies(base)
    f = f[f * TRAINED > 2 * math.pi]

    def turn(w, at, x):
        angle = AT[: x.shape[2], None] * f
        cos, sin = torch.ones(x.shape[2], DIM // 2).double(), torch.zeros(x.shape[2], DIM // 2).double()
        cos[:, : len(f)], sin[:, : len(f)] = angle.cos() @ w[at + "rotation.cosines"], angle.sin() @ w[at + "rotation.sines"]
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    return turn


def fope(base):
    return lambda w, at, q, k: fope_turned(base)(w, at, q) @ fope_turned(base)(w, at, k).transpose(-1, -2)


def turned_by(f):
    """Rotates by positions, half layout; sign -1: back."""

    def turn(sign, x):
        angle = AT[: x.shape[2], None] * f
        (a, b), cos, sin = x.chunk(2, -1), angle.cos(), sign * angle.sin()
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    return lambda sign: functools.partial(turn, sign)


turned = turned_by(frequencies())


def reads_turned(part):
    """A content or bias that reads queries and keys as they are rotated."""
    return lambda w, at, q, k, *h: part(w, at, turned(1)(q), turned(1)(k), *h)


def yarn(factor, base=10000.0):
    """NTK by parts (Peng et al. 2023, section 3.2): the frequencies, from 32 rotations in the trained length on as they are,
    up to one divided by the factor, with a ramp over the index between, whose ends are whole numbers."""
    ends = [DIM * math.log(TRAINED / (turns * 2 * math.pi)) / (2 * math.log(base)) for turns in (32, 1)]
    low, high = max(math.floor(ends[0]), 0), min(math.ceil(ends[1]), DIM - 1)
    ramp = ((torch.arange(DIM // 2).double() - low) / (high - low)).clamp(0, 1)
    return frequencies(base) * (1 - ramp + ramp / factor)


def partial(f):
    """A rotation of the first elements of each head, as many as f has pairs; the others keep still."""
    n, product = 2 * len(f), relative(torch.tensor(f).double())
    return lambda w, at, q, k: product(w, at, q[..., :n], k[..., :n]) + q[..., n:] @ k[..., n:].transpose(-1, -2)


def dynamic(factor, base=10000.0):
    """NTK whose base grows with the text."""

    def product(w, at, q, k):
        over = max(q.shape[2], TRAINED) / TRAINED
        return relative(frequencies(base * (factor * over - (factor - 1)) ** (DIM / (DIM - 2))))(w, at, q, k)

    return product


def times(number, product):
    return lambda *parts: number * product(*parts)


def mapped(rule):
    """Relative positions of all causal pairs by a rule of two whole numbers."""
    return torch.tensor([[rule(i, j) if j <= i else 0 for j in range(N)] for i in range(N)]).double()


def chunked(i, j, chunk=16, limit=24):
    place, apart = i % chunk, i // chunk - j // chunk
    return (place if apart == 0 else min(chunk + place, limit) if apart == 1 else limit) - j % chunk


# Biases.


def heads(x):
    return x[:, None, None]


def by_distance(values):
    """values(w, at) [heads, N, N], as far as the text reaches."""
    return lambda w, at, q, k, h: values(w, at + "bias.")[:, : q.shape[2], : q.shape[2]]


def kerple(w, at):
    return -heads(w[at + "r1"]) * (1 + heads(w[at + "r2"]) * D.abs()).log()


def kerple_power(w, at):
    return -heads(w[at + "r1"]) * D.abs() ** heads(w[at + "r2"])


def alibi(w, at):
    return -heads(w.get(at + "slopes", 2.0 ** -torch.arange(2, 10, 2).double())) * D.abs()


def fire(w, at):
    c, far = w[at + "c"], torch.maximum(w[at + "threshold"], AT)[:, None]
    x = (c * D.abs() + 1).log() / (c * far + 1).log()
    y = (x[..., None] * w[at + "w1"] + w[at + "b1"]).relu() @ w[at + "w2"].t() + w[at + "b2"]
    return y.permute(2, 0, 1)


def sandwich(dim):
    f = 10000.0 ** (-torch.arange(0, dim, 2).double() / dim)
    return lambda w, at: HEADS / (8 * heads(torch.arange(1, HEADS + 1))) * (D[..., None] * f).cos().sum(-1)


def t5_buckets(d, buckets, last):
    """Of distances d >= 0: half of the buckets hold one distance, the others grow to `last`."""
    exact = buckets // 2
    grown = exact + ((d / exact).clamp(min=1).log() / math.log(last / exact) * (buckets - exact) + 1e-12).floor()
    return torch.where(d < exact, d, grown.clamp(max=buckets - 1)).long()


def t5_both(buckets, last):
    half = buckets // 2
    return torch.where(D < 0, half, 0) + t5_buckets(D.abs(), half, last)


def t5(buckets_of_pairs):
    return lambda w, at: w[at + "embedding"].t()[:, buckets_of_pairs]


def gate(w, at, q, k, h):
    sums = (h @ w[at + "bias.weight"].t() + w[at + "bias.bias"]).sigmoid().log().cumsum(1).transpose(1, 2)
    return sums[..., :, None] - sums[..., None, :]


def shaw(left, right=0):
    """Of keys and of values: the row of a pair is the distance from query to key, clipped, plus `left`."""
    row = (-D).clamp(-left, right).long() + left

    def of(w, name, n):
        return w[name].expand(HEADS, -1, -1)[:, row[:n, :n]]

    def content(w, at, q, k):
        return (q[:, :, :, None] * of(w, at + "bias.key_rows", q.shape[2])).sum(-1)

    def values(w, at, weights):
        return torch.einsum("bhij,hijd->bhid", weights, of(w, at + "bias.value_rows", weights.shape[2]))

    return {"content": content, "values": values}


def transformer_xl(clamp):
    def content(w, at, q, k):
        n, b = q.shape[2], at + "bias."
        distance = D[:n, :n].clamp(-clamp, clamp) if clamp else D[:n, :n]
        r = torch.einsum("hdm,ijm->hijd", w[b + "projection"], sinusoids(distance, WIDTH, False))
        terms = (q + w[b + "position_bias"][:, None])[:, :, :, None] * r
        return terms.sum(-1) + (k @ w[b + "content_bias"][:, :, None]).transpose(-1, -2)

    return content


def deberta(buckets, most):
    """r: the row of a distance; beyond the middle, buckets that grow to most - 1."""
    middle, span = buckets // 2, buckets or most
    d = D.abs()
    if buckets:
        grown = middle + ((d / middle).clamp(min=1).log() / math.log((most - 1) / middle) * (middle - 1) - 1e-12).ceil()
        d = torch.where(d <= middle, d, grown)
    r = (D.sign() * d + span).clamp(0, 2 * span - 1).long()

    def content(w, at, q, k):
        n, b = q.shape[2], at + "bias."
        p_key, p_query = (
            torch.einsum("rm,hdm->hrd", w[b + "embedding"], w[f"{b}{p}_projection"]) + w[f"{b}{p}_projection_bias"][:, None]
            for p in ("key", "query")
        )
        return (q[:, :, :, None] * p_key[:, r[:n, :n]]).sum(-1) + (k[:, :, None] * p_query[:, r[:n, :n]]).sum(-1)

    return content


def tupe(reset=True, relative=None):
    def values(w, at):
        p = w[at + "embedding"]
        q, k = (torch.einsum("pm,hdm->hpd", p, w[f"{at}{n}_projection"]) + w[f"{at}{n}_projection_bias"][:, None] for n in ("query", "key"))
        s = q @ k.transpose(-1, -2) * (2 * DIM) ** -0.5
        s = s if relative is None else s + w[at + "relative"].t()[:, relative]
        if not reset:
            return s
        first = AT[: len(p), None] == 0
        return torch.where(first, heads(w[at + "from_cls"]), torch.where(first.t(), heads(w[at + "to_cls"]), s))

    return values


def cope(w, at, q, k, h):
    rows = w[at + "bias.position_rows"]
    gates = (q @ k.transpose(-1, -2) * DIM**-0.5).sigmoid().tril()
    position = torch.stack([gates[..., j:].sum(-1) for j in range(gates.shape[-1])], -1).clamp(max=rows.shape[1] - 1)
    low, high = position.floor(), position.ceil()
    at_rows = q @ rows.transpose(-1, -2)
    at_low, at_high = (at_rows.gather(-1, x.long()) for x in (low, high))
    return at_low + (position - low) * (at_high - at_low)


# Temperatures, of a period of 16.

LOG_N = ((AT + 1).log() / math.log(16)).clamp(min=1)
STEP_LOG = 1 + 0.3 * (1 + ((AT + 5) / 16).floor()).log()
MSCALE = torch.full_like(AT, (1 + 0.3 * math.log(16)) ** 2)
