#!/usr/bin/env python3
"""Makes the goldens of the tokenizers of text encoders: tiny ones of RoBERTa's, T5's, DeBERTa v3's and
XLM-R's kind, put together as transformers' converters do and trained here with PyPI's tokenizers, and
the ids that it gives for tokenizer/texts.json.

    python3 tests/golden/encoder_tokenizers_make.py      (tokenizers 0.22.2)
"""
import json
import pathlib

from tokenizers import (Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

from wordpiece_make import save

HERE = pathlib.Path(__file__).resolve().parent / "tokenizer"
# What SentencePiece's rules and unigram models are about.
MORE = ["\u2460\u2461 \uff21\uff22\uff23 \ufb01sh \u00a0x\u3000y", "e\u0301\u0301 \u00e9 A\u030a \u212b", "unknown\u4e2d\u6587 run \U0001f600\U0001f600",
        "  two  spaces   three ", "\u2581under \u2581\u2581 score", "``quoted'' text", "a\u0000b\u200bc\ufeffd", "x" * 300,
        "\r\n\tcontrol\r\n", "\u0915\u094d\u0937 \u1100\u1161\u11a8 \U0001f1eb\U0001f1f7", "<unk> </s> [CLS] [SEP] <s>", "", " "]


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def fields(data):
    """Length-delimited fields of a protocol buffer: (number, bytes)."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 2:
            size, at = varint(data, at)
            yield key >> 3, data[at:at + size]
            at += size
        elif key & 7 == 0:
            _, at = varint(data, at)
        else:
            at += {1: 8, 5: 4}[key & 7]


def charsmap():
    """Of tokenizer_make.py's own rules: normalizer_spec.precompiled_charsmap."""
    model = (HERE / "spm_unigram/tokenizer.model").read_bytes()
    spec = next(value for number, value in fields(model) if number == 3)
    return next(value for number, value in fields(spec) if number == 2)


def unigram(texts, special, unk, normalizer, pre, byte_fallback=False):
    tok = Tokenizer(models.Unigram())
    tok.normalizer, tok.pre_tokenizer, tok.decoder = normalizer, pre, decoders.Metaspace()
    tok.train_from_iterator(texts, trainers.UnigramTrainer(
        vocab_size=500, special_tokens=special, unk_token=unk, show_progress=False))
    if byte_fallback:
        data = json.loads(tok.to_str())
        data["model"]["vocab"] += [[f"<0x{b:02X}>", -20.0] for b in range(256)]
        data["model"]["byte_fallback"] = True
        tok = Tokenizer.from_str(json.dumps(data))
    return tok


def template(tok, single, names):
    tok.post_processor = processors.TemplateProcessing(
        single=single, special_tokens=[(n, tok.token_to_id(n)) for n in names])
    return tok


def tokenizers(texts):
    rules = normalizers.Precompiled(charsmap())
    spaces = normalizers.Replace(Regex(" {2,}"), " ")
    metaspace = pre_tokenizers.Metaspace()
    split = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace])
    latin = [t for t in texts if all(ord(c) < 0x250 for c in t)]
    roberta = Tokenizer(models.BPE())
    roberta.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    roberta.decoder = decoders.ByteLevel()
    roberta.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=500, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    roberta.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0),
                                                          add_prefix_space=False)
    yield "roberta", roberta
    yield "t5", template(unigram(latin, ["<pad>", "</s>", "<unk>"], "<unk>", rules, split),
                         "$A </s>", ["</s>"])
    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    yield "deberta", template(
        unigram(latin, special, "[UNK]", normalizers.Sequence([normalizers.Strip(), rules, spaces]),
                metaspace), "[CLS] $A [SEP]", ["[CLS]", "[SEP]"])
    # ALBERT's and XLNet's normaliser, and bytes for what is unknown.
    yield "unigram_bytes", template(
        unigram(latin, ["<s>", "<pad>", "</s>", "<unk>"], "<unk>", normalizers.Sequence([
            normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(),
            normalizers.StripAccents(), normalizers.Lowercase(), rules, spaces]), split, True),
        "<s> $A </s>", ["<s>", "</s>"])


def main():
    texts = json.loads((HERE / "texts.json").read_text())["texts"]
    for name, tok in tokenizers(texts):
        save(name, tok, texts, MORE)


if __name__ == "__main__":
    main()
