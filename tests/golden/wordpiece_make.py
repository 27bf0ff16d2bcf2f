#!/usr/bin/env python3
"""Makes the goldens of WordPiece: tiny tokenizers of BERT's kind trained here with PyPI's tokenizers,
and the ids that it gives for tokenizer/texts.json.

    python3 tests/golden/wordpiece_make.py      (tokenizers 0.22.2)
"""
import json
import pathlib

from tokenizers import (Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

HERE = pathlib.Path(__file__).resolve().parent / "tokenizer"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# What BERT's normaliser is about: controls, every white space, CJK, accents, capitals.
MORE = ["a\u0000b\u0007c\u200bd\ufeffe\ue000f\ufffdg\u0085h\u2028i\u00a0j\u3000k", "\u4e2d\u6587x\u4e00y\uff01\u3042",
        "\u0130I\u0131 \u00c5ngstr\u00f6m \u1e9e \u01c5 \u1e66\u0307", "can't (don't) \"we've\" -- a_b, $5.00 <x> ~ ^ ` |",
        "x" * 100, "x" * 101, "[CLS] in the text [SEP]", "\u2e3a\u00ab\u2026\u00bb", "  ", ""]


def save(name, tok, texts, more):
    """The tokenizer, and what it gives for both lists of texts."""
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    tok.save(str(folder / "tokenizer.json"), pretty=False)
    golden = dict(more=more)
    for key, group in (("ids", texts), ("more_ids", more)):
        tok.encode_special_tokens = True
        golden[key] = [tok.encode(t, add_special_tokens=False).ids for t in group]
    golden["decoded"] = [tok.decode(ids, skip_special_tokens=False) for ids in golden["ids"]]
    tok.encode_special_tokens = False
    special = [tok.encode(t, add_special_tokens=False).ids for t in texts]
    golden["special"] = {str(i): s for i, s in enumerate(special) if s != golden["ids"][i]}
    golden["framed"] = tok.encode("The End").ids
    (folder / "golden.json").write_text(
        json.dumps(golden, ensure_ascii=True, separators=(",", ":")) + "\n")


def main():
    texts = json.loads((HERE / "texts.json").read_text())["texts"]
    for name, options, processor in [
            ("bert", dict(lowercase=True), "template"),
            ("bert_cased", dict(lowercase=False, strip_accents=False), "bert")]:
        tok = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
        tok.normalizer = normalizers.BertNormalizer(**options)
        tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tok.decoder = decoders.WordPiece(cleanup=name == "bert")
        tok.train_from_iterator(texts + MORE, trainers.WordPieceTrainer(
            vocab_size=700, special_tokens=SPECIAL, show_progress=False, limit_alphabet=300))
        cls, sep = ("[CLS]", tok.token_to_id("[CLS]")), ("[SEP]", tok.token_to_id("[SEP]"))
        if processor == "bert":
            tok.post_processor = processors.BertProcessing(sep, cls)
        else:
            tok.post_processor = processors.TemplateProcessing(
                single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                special_tokens=[cls, sep])
        save(name, tok, texts, MORE)


if __name__ == "__main__":
    main()
