"""Random tiny encoders of every family that both transformers 4.57 and ropewalk know, and the states
that transformers gives.

Weights are large enough that attention is far from uniform, and that positions one later change the
states by more than a hundredth of their range.
"""

import dataclasses
import json
import pathlib

import numpy as np
import safetensors.torch
import torch
import transformers

import nezha

VOCAB = 64
BERT = dict(vocab_size=VOCAB, hidden_size=32, num_attention_heads=4, num_hidden_layers=2,
            intermediate_size=48, max_position_embeddings=300, type_vocab_size=2)
T5 = dict(vocab_size=VOCAB, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4)
DEBERTA = dict(BERT, relative_attention=True, pos_att_type=["p2c", "c2p"],
               position_biased_input=False, type_vocab_size=0)
DECODER_TABLE = "embeddings.position_embeddings.weight"
DEBERTA_V1 = dict(BERT, relative_attention=True, pos_att_type=["c2p", "p2c"], position_biased_input=False,
                  type_vocab_size=0, max_relative_positions=60)
XLNET = dict(vocab_size=VOCAB, d_model=32, n_layer=2, n_head=4, d_inner=48)


@dataclasses.dataclass
class Encoder:
    config: type
    model: type
    extra: dict  # of the configuration
    dtype: torch.dtype = torch.bfloat16  # as stored
    types: bool = False  # it is run with token types as well
    alpha: float = 0  # hierarchical positions of a table of `last` rows; 0: none
    last: int = 1 << 30  # tokens that it has positions for
    decoder: bool = False  # with the absolute positions of DeBERTa's mask decoder, `last` of them
    root: str = ""  # before every name, as a file with a task's head has it
    head: bool = False  # the model is a masked language model, whose logits are compared as well
    keys: tuple = ()  # of the configuration, that a published file has although they are defaults


ENCODERS = {
    "bert": Encoder(transformers.BertConfig, transformers.BertModel, BERT, types=True, last=300,
                    root="bert."),
    # Its own activation; a table of 20 rows read to 4 L and beyond.
    "bert_hierarchical": Encoder(
        transformers.BertConfig, transformers.BertModel,
        dict(BERT, max_position_embeddings=20, hidden_act="gelu_new"), torch.float32, alpha=0.4),
    "roberta": Encoder(transformers.RobertaConfig, transformers.RobertaModel,
                       dict(BERT, max_position_embeddings=302, type_vocab_size=1, pad_token_id=1),
                       torch.float16, last=300),
    "t5": Encoder(transformers.T5Config, transformers.T5EncoderModel,
                  dict(T5, feed_forward_proj="relu")),
    "t5_gated": Encoder(transformers.T5Config, transformers.T5EncoderModel,
                        dict(T5, feed_forward_proj="gated-gelu", relative_attention_num_buckets=16,
                             relative_attention_max_distance=40, d_kv=12), torch.float32),
    "umt5": Encoder(transformers.UMT5Config, transformers.UMT5EncoderModel,
                    dict(T5, feed_forward_proj="gated-gelu")),
    # With the head of the masked language model: tied, of its own, its own activation or always GELU.
    "bert_masked": Encoder(transformers.BertConfig, transformers.BertForMaskedLM,
                           dict(BERT, hidden_act="relu"), types=True, last=300, head=True),
    "bert_masked_untied": Encoder(transformers.BertConfig, transformers.BertForMaskedLM,
                                  dict(BERT, tie_word_embeddings=False), torch.float32, last=300,
                                  head=True),
    "roberta_masked": Encoder(transformers.RobertaConfig, transformers.RobertaForMaskedLM,
                              dict(BERT, max_position_embeddings=302, type_vocab_size=1,
                                   pad_token_id=1, hidden_act="relu"), torch.float16, last=300,
                              head=True),
    # Embeddings as wide as the layers, and narrower ones, which the head has as well. In float32, as
    # the files of its makers: transformers reads the table of sines from the file.
    "roformer": Encoder(transformers.RoFormerConfig, transformers.RoFormerModel,
                        dict(BERT, max_position_embeddings=1200), torch.float32, types=True,
                        root="roformer."),
    "roformer_masked": Encoder(transformers.RoFormerConfig, transformers.RoFormerForMaskedLM,
                               dict(BERT, max_position_embeddings=1200, embedding_size=20,
                                    hidden_act="gelu_new"), torch.float32, types=True, head=True),
    "nezha": Encoder(nezha.NezhaConfig, nezha.NezhaModel,
                     dict(BERT, max_position_embeddings=1200), types=True),
    "nezha_masked": Encoder(nezha.NezhaConfig, nezha.NezhaForMaskedLM,
                            dict(BERT, max_position_embeddings=1200, max_relative_position=16),
                            torch.float32, head=True),
    "deberta_v1": Encoder(transformers.DebertaConfig, transformers.DebertaModel, DEBERTA_V1,
                          torch.float32, root="deberta."),
    "deberta_v1_c2p": Encoder(transformers.DebertaConfig, transformers.DebertaModel,
                              dict(DEBERTA_V1, pos_att_type="c2p", position_biased_input=True,
                                   type_vocab_size=3, max_relative_positions=-1), types=True,
                              last=300),
    "deberta_v1_p2c": Encoder(transformers.DebertaConfig, transformers.DebertaModel,
                              dict(DEBERTA_V1, pos_att_type=["p2c"], max_relative_positions=100)),
    # v1's linear distances with matrices of their own; v2's and v3's buckets and shared matrices.
    "deberta_linear": Encoder(transformers.DebertaV2Config, transformers.DebertaV2Model,
                              dict(DEBERTA, max_relative_positions=60), torch.float32),
    "deberta_v3": Encoder(transformers.DebertaV2Config, transformers.DebertaV2Model,
                          dict(DEBERTA, position_buckets=16, max_relative_positions=-1,
                               share_att_key=True, norm_rel_ebd="layer_norm")),
    "deberta_c2p": Encoder(transformers.DebertaV2Config, transformers.DebertaV2Model,
                           dict(DEBERTA, pos_att_type="c2p", position_buckets=12,
                                max_relative_positions=100, position_biased_input=True,
                                type_vocab_size=3), torch.float16, types=True, last=300),
    "deberta_p2c": Encoder(transformers.DebertaV2Config, transformers.DebertaV2Model,
                           dict(DEBERTA, pos_att_type=["p2c"], position_buckets=16,
                                share_att_key=True, max_relative_positions=80)),
    # The mask decoder's positions, as a checkpoint of the original code has them.
    "deberta_decoder": Encoder(
        transformers.DebertaV2Config, transformers.DebertaV2Model,
        dict(DEBERTA, position_buckets=16, max_relative_positions=-1, share_att_key=True,
             norm_rel_ebd="layer_norm", num_hidden_layers=3), last=300, decoder=True,
        root="deberta."),
    "deberta_decoder_linear": Encoder(
        transformers.DebertaV2Config, transformers.DebertaV2Model,
        dict(DEBERTA, max_relative_positions=60, max_position_embeddings=80), torch.float32,
        last=80, decoder=True),
    "xlnet": Encoder(transformers.XLNetConfig, transformers.XLNetModel, XLNET, root="transformer."),
    "xlnet_clamped": Encoder(transformers.XLNetConfig, transformers.XLNetModel,
                             dict(XLNET, clamp_len=50, ff_activation="relu", untie_r=True),
                             torch.float32),
}


def random_model(name):
    """The weights of an encoder, exact in the dtype they are stored in."""
    return filled(ENCODERS[name], sum(map(ord, name)))


def filled(encoder, seed):
    model = encoder.model(encoder.config(**encoder.extra)).float().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter, p in model.named_parameters():
            if "embed_positions" in parameter:  # RoFormer's sines
                continue
            noise = torch.randn(p.shape, generator=generator)
            if parameter.endswith("norm.weight") or parameter.endswith("Norm.weight"):
                value = 1.2 + 0.3 * noise
            elif "relative_attention_bias" in parameter:
                value = 1.5 * noise
            elif parameter.startswith("decoder.") and parameter.endswith("Attention.q.weight"):
                value = 0.06 * noise  # two softmaxes in a layer, behind those of the encoder
            elif "SelfAttention.q" in parameter:
                # T5 does not scale its scores: at 0.3 the largest weights would be a one or nothing,
                # and float32 would turn rounding into numbers of either program.
                value = 0.12 * noise
            elif any(n in parameter for n in ("position_embeddings", "rel_embeddings")):
                value = 0.8 * noise
            else:
                value = 0.3 * noise
            p.copy_(value.to(encoder.dtype).float())
    return model


def write_folder(name, folder):
    encoder = ENCODERS[name]
    model = random_model(name).to(encoder.dtype)
    model.save_pretrained(folder)
    path = pathlib.Path(folder) / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    if encoder.decoder:  # which transformers does not write
        tensors[DECODER_TABLE] = decoder_table(name).to(encoder.dtype)
    if encoder.root:  # as a checkpoint of a task has the names, with a head that is not read
        tensors = {encoder.root + k: v for k, v in tensors.items()}
        tensors["classifier.weight"] = torch.zeros(2, 32)
    if encoder.decoder or encoder.root:
        safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})


def decoder_table(name):
    encoder = ENCODERS[name]
    noise = torch.randn((encoder.last, 32), generator=torch.Generator().manual_seed(len(name)))
    return (0.8 * noise).to(encoder.dtype).float()


def decoder_states(model, table, ids):
    """What DeBERTa's masked language model reads (arXiv 2006.03654, section 3.2): transformers' last
    layer twice, asked from the positions and from its own answer, about the states below it."""
    everyone = torch.ones(1, len(ids))
    below = model(torch.tensor([ids]), attention_mask=everyone,
                  output_hidden_states=True).hidden_states[-2]
    encoder = model.encoder
    states = below + table[:len(ids)]
    for _ in range(2):
        states = encoder.layer[-1](
            below, encoder.get_attention_mask(everyone), query_states=states,
            relative_pos=encoder.get_rel_pos(below), rel_embeddings=encoder.get_rel_embedding())[0]
    return states[0]


def decomposed(table, alpha, tokens):
    """Su 2020 typed again: q[i n + j] = alpha u[i] + (1 - alpha) u[j], u = (p - alpha p[0]) / (1 - alpha)."""
    n = len(table)
    p = table.double()
    u = (p - alpha * p[0]) / (1 - alpha)
    k = torch.arange(tokens)
    return (alpha * u[k // n] + (1 - alpha) * u[k % n]).float()


def extended(model, alpha, tokens):
    """A BertModel whose table of positions is the decomposition of its own."""
    old = model.embeddings.position_embeddings
    new = torch.nn.Embedding(tokens, old.weight.shape[1])
    with torch.no_grad():
        new.weight.copy_(decomposed(old.weight.detach(), alpha, tokens))
    model.embeddings.position_embeddings = new
    model.embeddings.register_buffer("position_ids", torch.arange(tokens)[None], persistent=False)
    model.embeddings.register_buffer("token_type_ids", torch.zeros(1, tokens, dtype=torch.long),
                                     persistent=False)
    return model


def states(name, folder, ids, types=None, decoder=False, logits=False):
    """[ids, hidden] float32 of eager attention, of the last layer or of the mask decoder; or the logits
    of the masked language model, [ids, vocabulary]."""
    encoder = ENCODERS[name]
    plain = {} if any(n in name for n in ("xlnet", "deberta", "roformer", "nezha")) else dict(attn_implementation="eager")
    source = folder
    if encoder.root:
        # transformers finds the names with their root by itself for a model of the task alone.
        model = encoder.model(encoder.config.from_pretrained(folder, **plain)).float()
        tensors = safetensors.torch.load_file(pathlib.Path(folder) / "model.safetensors")
        if encoder.decoder:
            del tensors[encoder.root + DECODER_TABLE]
        model.load_state_dict({k.removeprefix(encoder.root): v.float() for k, v in tensors.items()
                               if k.startswith(encoder.root)})
    else:
        model = encoder.model.from_pretrained(source, dtype=torch.float32, **plain)
    if encoder.alpha:
        model = extended(model, encoder.alpha, len(ids))
    more = {} if types is None else dict(token_type_ids=torch.tensor([types]))
    with torch.no_grad():
        if decoder:
            return decoder_states(model.eval(), decoder_table(name), ids).numpy().astype(np.float32)
        inputs = torch.tensor([ids]), torch.ones(1, len(ids))
        if logits:
            return model.eval()(*inputs, **more).logits[0].numpy().astype(np.float32)
        out = (model.base_model if encoder.head else model).eval()(*inputs, **more)
        return out.last_hidden_state[0].numpy().astype(np.float32)


def ids_of(tokens, seed):
    # 2 .. VOCAB - 1: RoBERTa's padding, whose position is another, is 1.
    return [int(i) for i in np.random.default_rng(seed).integers(2, VOCAB, tokens)]


def types_of(name, tokens):
    count = ENCODERS[name].extra["type_vocab_size"]
    return [count * t // tokens for t in range(tokens)]


def write_json(path, value):
    pathlib.Path(path).write_text(json.dumps(value) + "\n")
