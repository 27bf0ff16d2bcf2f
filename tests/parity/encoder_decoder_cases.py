"""Random tiny encoder-decoder models, and the logits that transformers gives the tokens behind a prefix.

The prefix goes through the encoder with eos behind it; the decoder reads its start token and then the tokens
themselves, each of which it predicts from those before it.
"""

import json
import pathlib

import torch
import transformers

import encoder_cases
from encoder_cases import T5, Encoder

EOS, START = 1, 0
LM = dict(T5, num_layers=2, num_decoder_layers=3, decoder_start_token_id=START)

MODELS = {
    # The first T5: ReLU, the head is the embedding and its states are scaled. An odd number of heads, which
    # together are wider than the layers.
    "t5_lm": Encoder(transformers.T5Config, transformers.T5ForConditionalGeneration,
                     dict(LM, num_heads=5, d_kv=12, feed_forward_proj="relu")),
    # 1.1: gated, a head of its own; other buckets.
    "t5_lm_gated": Encoder(transformers.T5Config, transformers.T5ForConditionalGeneration,
                           dict(LM, num_heads=3, num_decoder_layers=1, feed_forward_proj="gated-gelu",
                                tie_word_embeddings=False, relative_attention_num_buckets=17,
                                relative_attention_max_distance=40), torch.float32),
    "mt5_lm": Encoder(transformers.MT5Config, transformers.MT5ForConditionalGeneration,
                      dict(LM, tie_word_embeddings=False), torch.float16),
    "umt5_lm": Encoder(transformers.UMT5Config, transformers.UMT5ForConditionalGeneration,
                       dict(LM, tie_word_embeddings=False)),
}


def write_folder(name, folder):
    model = encoder_cases.filled(MODELS[name], sum(map(ord, name)))
    tied = MODELS[name].extra.get("tie_word_embeddings", True)
    if not tied:
        untie(model, sum(map(ord, name)) + 1, MODELS[name].dtype)
    model.to(MODELS[name].dtype).save_pretrained(folder)
    # Transformers 5 says of every model that its head is tied, and then reads the files' all the same.
    path = pathlib.Path(folder) / "config.json"
    config = json.loads(path.read_text())
    config.pop("scale_decoder_outputs", None)
    encoder_cases.write_json(path, dict(config, tie_word_embeddings=tied))
    (path.parent / "generation_config.json").unlink(missing_ok=True)


def untie(model, seed, dtype):
    """A head of its own: transformers 5 ties it to the embedding in any new model."""
    noise = torch.randn(model.shared.weight.shape, generator=torch.Generator().manual_seed(seed))
    model.lm_head.weight = torch.nn.Parameter((0.3 * noise).to(dtype).float())


def load(name, folder):
    model = MODELS[name].model.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    if name == "umt5_lm":  # transformers 5 scales these states as if the head were tied; 4 does not
        model.config.tie_word_embeddings = False
    return model


def logits(model, prefix, ids):
    """[ids, vocabulary] float32: of each token of `ids`, what is predicted in its place."""
    with torch.no_grad():
        out = model(input_ids=torch.tensor([prefix + [EOS]]),
                    decoder_input_ids=torch.tensor([[START] + ids[:-1]]))
    return out.logits[0].numpy()


def loss(model, prefix, ids):
    """Mean nats per token of `ids`, as the model itself says with labels."""
    with torch.no_grad():
        return float(model(input_ids=torch.tensor([prefix + [EOS]]), labels=torch.tensor([ids])).loss)
