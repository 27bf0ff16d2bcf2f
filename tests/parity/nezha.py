"""NEZHA (Wei et al. 2019, arXiv 1909.00204) typed again in PyTorch, since transformers 5 no longer has it.

BERT without vectors of positions, whose attention adds a row of a fixed table to every key and to
every value (section 2.2.1; Shaw et al. 2018, arXiv 1803.02155):

    score(i, j) = q_i . (k_j + t[r]) / sqrt(head_dim),  out_i = sum of softmax(score)(i, j) (v_j + t[r])
    r = clip(j - i, -reach, reach) + reach,  t[r, 2 k] = sin(r w_k), t[r, 2 k + 1] = cos(r w_k)
    w_k = 10000^(-2 k / head_dim)

The published code counts the rows of the table from 0, where the paper's formula has j - i.
"""

import torch
import transformers
from torch import nn


class NezhaConfig(transformers.BertConfig):
    model_type = "nezha"

    def __init__(self, max_relative_position=64, **keys):
        super().__init__(**keys)
        self.max_relative_position = max_relative_position
        for key in ("position_embedding_type", "is_decoder", "add_cross_attention"):
            self.__dict__.pop(key, None)


def table(reach, dim):
    place = torch.arange(2 * reach + 1, dtype=torch.float64)[:, None]
    angle = place * 10000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    return torch.stack([angle.sin(), angle.cos()], -1).reshape(len(place), dim).float()


class SelfAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.reach = c.num_attention_heads, c.max_relative_position
        self.query, self.key, self.value = (nn.Linear(c.hidden_size, c.hidden_size) for _ in range(3))

    def forward(self, x, mask):
        b, n, h = x.shape
        q, k, v = (f(x).view(b, n, self.heads, -1).transpose(1, 2)
                   for f in (self.query, self.key, self.value))
        place = torch.arange(n)
        away = (place[None] - place[:, None]).clamp(-self.reach, self.reach) + self.reach
        rows = table(self.reach, q.shape[-1])[away]  # [query, key, head_dim]
        scores = q @ k.transpose(2, 3) + torch.einsum("bhid,ijd->bhij", q, rows)
        weights = (scores / q.shape[-1] ** 0.5 + mask).softmax(-1)
        out = weights @ v + torch.einsum("bhij,ijd->bhid", weights, rows)
        return out.transpose(1, 2).reshape(b, n, h)


class Output(nn.Module):
    def __init__(self, c, width):
        super().__init__()
        self.dense = nn.Linear(width, c.hidden_size)
        self.LayerNorm = nn.LayerNorm(c.hidden_size, c.layer_norm_eps)

    def forward(self, x, residual):
        return self.LayerNorm(self.dense(x) + residual)


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.attention, self.intermediate = nn.Module(), nn.Module()
        self.attention.self, self.attention.output = SelfAttention(c), Output(c, c.hidden_size)
        self.intermediate.dense = nn.Linear(c.hidden_size, c.intermediate_size)
        self.output = Output(c, c.intermediate_size)

    def forward(self, x, mask):
        x = self.attention.output(self.attention.self(x, mask), x)
        return self.output(nn.functional.gelu(self.intermediate.dense(x)), x)


class NezhaModel(transformers.PreTrainedModel):
    config_class, base_model_prefix = NezhaConfig, "nezha"

    def __init__(self, c):
        super().__init__(c)
        self.embeddings, self.encoder = nn.Module(), nn.Module()
        self.embeddings.word_embeddings = nn.Embedding(c.vocab_size, c.hidden_size)
        self.embeddings.token_type_embeddings = nn.Embedding(c.type_vocab_size, c.hidden_size)
        self.embeddings.LayerNorm = nn.LayerNorm(c.hidden_size, c.layer_norm_eps)
        self.encoder.layer = nn.ModuleList(Layer(c) for _ in range(c.num_hidden_layers))
        self.post_init()

    def forward(self, ids, attention_mask=None, token_type_ids=None):
        e = self.embeddings
        types = torch.zeros_like(ids) if token_type_ids is None else token_type_ids
        x = e.LayerNorm(e.word_embeddings(ids) + e.token_type_embeddings(types))
        for layer in self.encoder.layer:
            x = layer(x, 0.0)
        return transformers.modeling_outputs.BaseModelOutput(x)


class NezhaForMaskedLM(transformers.PreTrainedModel):
    config_class, base_model_prefix = NezhaConfig, "nezha"

    def __init__(self, c):
        super().__init__(c)
        self.nezha, self.cls = NezhaModel(c), nn.Module()
        head = self.cls.predictions = nn.Module()
        head.transform = nn.Module()
        head.transform.dense = nn.Linear(c.hidden_size, c.hidden_size)
        head.transform.LayerNorm = nn.LayerNorm(c.hidden_size, c.layer_norm_eps)
        head.bias = nn.Parameter(torch.zeros(c.vocab_size))
        self.post_init()

    def forward(self, ids, attention_mask=None, token_type_ids=None):
        head = self.cls.predictions
        x = nn.functional.gelu(head.transform.dense(self.nezha(ids, None, token_type_ids)[0]))
        words = self.nezha.embeddings.word_embeddings.weight
        return transformers.modeling_outputs.MaskedLMOutput(
            logits=head.transform.LayerNorm(x) @ words.T + head.bias)
