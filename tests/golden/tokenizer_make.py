#!/usr/bin/env python3
"""Makes the tokenizer goldens: tiny tokenizers trained here with PyPI's tokenizers and sentencepiece,
and the ids that those libraries give for tokenizer/texts.json.

    pip install tokenizers==0.23.3 sentencepiece==0.1.99 protobuf gguf==0.19.0 numpy
    python tests/golden/tokenizer_make.py [--data ROPEWALK_TEST_DATA] [--out DIR] [--random N]

With --data, also the ids of the real vocabularies in DATA/gguf_vocab, from tokenizers rebuilt out
of the GGUF's own tokens and merges. --random adds N random texts (the committed ones have 120).
"""
import argparse
import io
import json
import os
import pathlib
import random
import struct

import sentencepiece as spm
import tokenizers
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

ENGLISH = """It is a truth universally acknowledged, that a single man in possession of a good fortune
must be in want of a wife. However little known the feelings or views of such a man may be on his
first entering a neighbourhood, this truth is so well fixed in the minds of the surrounding families,
that he is considered as the rightful property of some one or other of their daughters.
"My dear Mr. Bennet," said his lady to him one day, "have you heard that Netherfield Park is let at
last?" Mr. Bennet replied that he hadn't. "But it is," returned she; "for Mrs. Long has just been
here, and she told me all about it." They'll say we've done what I'd do; you're sure it's SO, aren't YOU?
"""

CODE = """#include <vector>
int main(int argc, char** argv) {
\tstd::vector<int> v(1024, -1);   // fill
    for (size_t i = 0; i < v.size(); ++i) { v[i] += (i << 3) ^ 0xFFu; }
\treturn v[17] == 3.14159e-7f ? 0 : 1;\r\n}

def f(x, *, y=None):
    '''doc'''
    return {"a": [x ** 2, y or 0.5], 'b': f"{x!r:>10}"}  # TODO: naïve


if __name__ == "__main__":
        print(f(3)["a"][-1:], end="")
"""

SCRIPTS = [
    "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心。",
    "すべての人間は、生まれながらにして自由であり、ｶﾀｶﾅもある。",
    "모든 인간은 태어날 때부터 자유로우며 존엄과 권리에 있어 동등하다.",
    "يولد جميع الناس أحراراً متساوين في الكرامة والحقوق. ١٢٣٤",
    "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता प्राप्त है। १२३",
    "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ ๑๒๓",
    "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם. שָׁלוֹם",
    "Все люди рождаются свободными и равными в своём достоинстве и правах.",
    "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια.",
    "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm.",
    "Être né libre: çà et là, œuvre, Straße, ŒUVRE, İstanbul, ǅ ǆ ŉ, ﬁne ﬆ.",
    "e\u0301 vs \u00e9, n\u0303o, A\u030a, \u212b, q\u0307\u0323, \u1100\u1161\u11a8, Z\u0351\u036b\u0343algo\u0334",
    "👍 👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇫🇷🇩🇪 ☃️ 1️⃣ \U0001F9D1\u200D\U0001F680 🤷🏿‍♀️",
    "½ ² ³ Ⅷ ① ㊿ ௧௨ ೧ 𝟘𝟙𝟚 𝒜𝓑 ℌ",
    "zero\u200bwidth \u200e\u200fmarks \ufeffbom \u00adsoft a\u2060b \u180e mvs",
    "\u00a0nbsp\u00a0 \u2003em\u2003 \u3000ideo\u3000 \u2028line\u2029para \u0085nel \u1680ogham \u202f",
    "¿Qué? ¡Sí! «hola» „ja“ ‘x’ ’s ’re — – … • ‰ € £ ¥ § ¶ © ® ™ × ÷ ± ≤ ≠ ∑ ∞",
    "\u0378\U000e0001\U0010ffff\ue000\ufffd unassigned and private",
]

TEXTS = [
    "", " ", "  ", "   ", "\n", "\n\n", "\t", " \n", "\n ", "\r\n", "a", " a", "a ", "  a", "a  b",
    "a\n\nb", "a \n b", "a\n  b", "\ta\t\tb", "    four", "trail   ", "trail\n\n\n", " \t \n \r\n  x",
    "                                                            sixty", "x" * 70, "é" * 40,
    "Hello, world!", "Hello world", " Hello", "HELLO'S don't I'M we'LL 'tis y'all'd've 's",
    "0 1 12 123 1234 12345 1234567890 3.14 1,000,000 -5 1e-9 0x1F 2024-01-31T23:59",
    "foo_bar fooBar FooBarBaz FOO_BAR foo-bar foo.bar/baz?q=1&r=2#x @user $5 100% ~/.x",
    "!!! ??? ... ---- ==== //// \\\\ ((())) [[{}]] <|> ^_^ :-)", "a.b,c;d:e!f?g", "\"'`´’",
    "no\0nul\x01\x02\x7f ctl", "<s>", "</s> <unk> <pad>", "<|endoftext|>", "a<|im_start|>user\nhi<|im_end|>b",
    " <|im_end|> ", "<|im_end|", "<0x0A> <0x41>", "▁under ▁▁ _", "Ġbyte Ċ level", "<mask>x <mask> x<mask>",
    "word in words inword word", "A  B   C    D     E      F       G        H",
    ENGLISH, CODE,
] + SCRIPTS

ALPHABET = list("abcXYZ 019 .,'!-_\n\t\r ") + [" ", "  ", "\n", "'s", "'LL", "é", "e\u0301", "ß", "İ", "Ж", "中", "文",
    "の", "가", "\u1100\u1161", "ع", "١", "क", "\u094d", "\u200d", "ก", "\u0e49", "ש", "\u05b8", "👍", "🏽", "½", "²",
    "\u00a0", "\u3000", "\u2028", "\u0085", "\u180e", "\u200b", "\ufeff", "。", "，", "“", "§", "€", "+", "𝟘", "▁", "Ġ",
    "<|im_end|>", "<mask>", "word", "\u0301", "\u0327", "ﬁ", "Å", "\U000e0001", "\ue000", "\x00", "ſ", "K"]


def random_texts(count):
    rng = random.Random(20240131)
    return ["".join(rng.choice(ALPHABET) for _ in range(rng.randint(1, 24))) for _ in range(count)]


def corpus():
    return [ENGLISH * 3, CODE * 2] + [s for s in SCRIPTS for _ in range(2)]


LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
NOT_HAN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]%s"
           r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]%s(?i:'s|'t|'re|'ve|'m|'ll|'d)?")
KIMI_K2 = "|".join([r"[\p{Han}]+", NOT_HAN % ("*", "+"), NOT_HAN % ("+", "*"), r"\p{N}{1,3}",
                    r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
DEEPSEEK_V3 = [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
               r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
               r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""]
DEEPSEEK_CODER = ["[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[一-龥ࠀ-一가-퟿]+"]


def byte_level(use_regex=False, prefix=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=use_regex)


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(pattern if isinstance(pattern, str) and len(pattern) == 1 else Regex(pattern),
                                behavior, invert)


def deepseek_coder():
    return pre_tokenizers.Sequence([split(p) for p in DEEPSEEK_CODER] +
                                   [pre_tokenizers.Digits(individual_digits=True), byte_level()])


def trained(pre, normalizer=None, vocab=420, decoder=None, alphabet=True, limit=None, specials=("<|endoftext|>", "<|im_end|>"),
            **model):
    tok = Tokenizer(models.BPE(**model))
    if normalizer is not None:
        tok.normalizer = normalizer
    if pre is not None:
        tok.pre_tokenizer = pre
    tok.decoder = decoder or decoders.ByteLevel()
    initial = pre_tokenizers.ByteLevel.alphabet() if alphabet else []
    if not alphabet:
        specials = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    options = {} if limit is None else {"limit_alphabet": limit}
    tok.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=vocab, special_tokens=list(specials),
                                                          initial_alphabet=initial, show_progress=False, **options))
    return tok


def fallback_from(tok, change):
    """Byte pieces come out of the trainer as special added tokens; in real files they are not."""
    data = json.loads(tok.to_str())
    data["added_tokens"] = [t for t in data["added_tokens"] if not t["content"].startswith("<0x")]
    data["model"].update(byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    change(data)
    return Tokenizer.from_str(json.dumps(data))


def tiny_tokenizers():
    out = {}
    out["gpt2"] = trained(byte_level(True))
    tok = trained(byte_level(True, True), normalizers.NFC())
    tok.add_tokens([AddedToken("  ", normalized=True), AddedToken("    ", normalized=False),
                    AddedToken("word", single_word=True), AddedToken("é!", normalized=True)])
    tok.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True),
                            AddedToken("<pad>", rstrip=True, special=True), AddedToken("<|im_start|>", special=True)])
    out["added"] = tok
    tok = trained(pre_tokenizers.Sequence([split(LLAMA3), byte_level()]), ignore_merges=True)
    bos = tok.token_to_id("<|endoftext|>")
    tok.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|endoftext|> $A", pair="<|endoftext|> $A <|endoftext|> $B",
                                      special_tokens=[("<|endoftext|>", bos)])])
    out["llama3"] = tok
    out["qwen2"] = trained(pre_tokenizers.Sequence([split(QWEN2), byte_level()]), normalizers.NFC())
    out["gpt4o"] = trained(pre_tokenizers.Sequence([split(GPT4O), byte_level()]))
    out["smollm"] = trained(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(True)]))
    out["falcon"] = trained(pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), byte_level(True), pre_tokenizers.Digits(individual_digits=False),
        split("[0-9][0-9][0-9]")]))
    out["deepseek_coder"] = trained(deepseek_coder())
    out["deepseek_v3"] = trained(pre_tokenizers.Sequence([*map(split, DEEPSEEK_V3), byte_level()]))
    out["tekken"] = trained(pre_tokenizers.Sequence([split(TEKKEN), byte_level()]), ignore_merges=True)
    out["kimi_k2"] = trained(pre_tokenizers.Sequence([split(KIMI_K2), byte_level()]))
    out["bloom"] = trained(pre_tokenizers.Sequence([split(BLOOM), byte_level()]))
    out["behaviors"] = trained(pre_tokenizers.Sequence([
        split(r"\n", "merged_with_previous"), split("x", "merged_with_next"), split(r"[,;]+", "removed"),
        split(r"[\w.]+|\b-", "contiguous", True), pre_tokenizers.Punctuation("merged_with_previous"),
        split(r"(?=[A-Z])"), byte_level()]),
        normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(r"\d{4,}"), "N"),
                              normalizers.Replace("!!", "!"), normalizers.Strip(True, False)]))
    out["whitespace"] = trained(pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), byte_level()]), normalizers.NFD(), limit=120)
    out["nfkd"] = trained(pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), byte_level()]), normalizers.NFKD())

    llama = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    llama_decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                       decoders.Strip(" ", 1, 0)])
    base = trained(pre_tokenizers.Metaspace(), None, 640, llama_decoder, False, 120)

    def llama2(data):
        data["pre_tokenizer"] = None
        data["normalizer"] = json.loads(Tokenizer_with(llama).to_str())["normalizer"]
    out["llama2"] = fallback_from(base, llama2)

    def gemma(data):  # no space in front, spaces apart, runs that are tokens of their own
        data["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
        data["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "},
                                 "behavior": "MergedWithPrevious", "invert": False}
        data["decoder"] = {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}]}
    out["gemma"] = fallback_from(base, gemma)
    out["gemma"].add_tokens([AddedToken(t, normalized=False) for t in ("\n\n", "  ", "   ", "<table>")])

    def metaspace(scheme, do_split):
        def change(data):
            data["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": do_split}
        return change
    out["metaspace_first"] = fallback_from(base, metaspace("first", False))
    out["metaspace_first"].add_tokens([AddedToken("<mask>", normalized=False)])
    out["metaspace_always"] = fallback_from(base, metaspace("always", True))
    out["metaspace_always"].add_special_tokens([AddedToken("<|im_end|>", normalized=False, special=True)])
    out["metaspace_never"] = fallback_from(base, metaspace("never", True))

    def no_fallback(data):
        data["model"].update(byte_fallback=False, fuse_unk=False)
    out["unknown"] = fallback_from(base, no_fallback)
    return out


def Tokenizer_with(normalizer):
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizer
    return tok


def tiny_sentencepiece(where):
    """BPE with byte fallback as Llama has it; unigram with rules, extra spaces removed, no fallback."""
    lines = [line for text in corpus() for line in text.split("\n") if line]
    rules = where / "rules.tsv"
    rules.write_text("FB01\t66 69\n65 301\tE9\nBD\t31 2044 32\n2026\t2E 2E 2E\n", encoding="utf-8")
    common = dict(hard_vocab_limit=False, minloglevel=2, num_threads=1, character_coverage=0.98)
    for name, options in {
            "spm_bpe": dict(model_type="bpe", vocab_size=900, byte_fallback=True, normalization_rule_name="identity",
                            remove_extra_whitespaces=False, split_digits=True, allow_whitespace_only_pieces=True,
                            user_defined_symbols=["<mask>"], control_symbols=["<|im_end|>"]),
            "spm_unigram": dict(model_type="unigram", vocab_size=600, normalization_rule_tsv=os.path.relpath(rules))}.items():
        model = io.BytesIO()
        spm.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, **common, **options)
        (where / name).mkdir(exist_ok=True)
        (where / name / "tokenizer.model").write_bytes(model.getvalue())
        yield name, spm.SentencePieceProcessor(model_proto=model.getvalue())
    rules.unlink()


class Llama2c:
    """llama2.c's rule, tried in the slowest way: until no neighbours form a token, look at all of them and merge the
    leftmost of those with the best score."""

    def __init__(self, pieces, scores):
        self.pieces, self.scores = pieces, scores
        self.ids = {piece: i for i, piece in reversed(list(enumerate(pieces)))}

    def encode(self, text):
        if not text:
            return []
        ids = [self.ids[b" "]]
        for c in text:
            c = c.encode("utf-8")
            ids += [self.ids[c]] if c in self.ids else [b + 3 for b in c]
        while True:
            best = (-1e10, None, None)
            for i in range(len(ids) - 1):
                both = self.ids.get(self.pieces[ids[i]] + self.pieces[ids[i + 1]])
                if both is not None and self.scores[both] > best[0]:
                    best = (self.scores[both], i, both)
            if best[1] is None:
                return ids
            ids[best[1]:best[1] + 2] = [best[2]]

    @staticmethod
    def read(data, count):
        at, pieces, scores = 4, [], []
        for _ in range(count):
            score, length = struct.unpack_from("<fi", data, at)
            pieces.append(data[at + 8:at + 8 + length])
            scores.append(score)
            at += 8 + length
        assert at == len(data)
        return Llama2c(pieces, scores)

    @staticmethod
    def export(sp):
        """tokenizer.bin of a SentencePiece model, spelled as llama2.c's own export does."""
        def spell(i):  # the bytes have the ids from 3
            if i in (1, 2):
                return ("\n<s>\n", "\n</s>\n")[i - 1].encode()
            return sp.id_to_piece(i).replace("▁", " ").encode("utf-8")
        rest = [i for i in range(3, sp.get_piece_size()) if not sp.is_byte(i) and sp.id_to_piece(i)[0] != "<"]
        order = [0, 1, 2] + [i for i in range(sp.get_piece_size()) if sp.is_byte(i)] + rest
        pieces = [spell(i) for i in order]
        rows = [struct.pack("<fi", sp.get_score(i), len(p)) + p for i, p in zip(order, pieces)]
        return struct.pack("<i", max(map(len, pieces))) + b"".join(rows), len(pieces)


def ids_of(tok, texts, special):
    if isinstance(tok, Tokenizer):
        tok.encode_special_tokens = not special
        return [tok.encode(text, add_special_tokens=False).ids for text in texts]
    return [tok.encode(text) for text in texts]


def golden(tok, texts, specials=True):
    result = {"ids": ids_of(tok, texts, False)}
    if isinstance(tok, Tokenizer):
        if specials:
            changed = {str(i): ids for i, ids in enumerate(ids_of(tok, texts, True)) if ids != result["ids"][i]}
            result["special"] = changed  # texts whose ids differ when special tokens are recognised
        if "Byte" not in type(tok.decoder).__name__:
            result["decoded"] = [tok.decode(ids, skip_special_tokens=False) for ids in result["ids"]]
    elif not isinstance(tok, Llama2c):
        result["decoded"] = [tok.decode(ids) for ids in result["ids"]]
    return result


def write(path, value):
    path.write_text(json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n", encoding="utf-8")


def from_gguf(path, pre):
    import gguf
    reader = gguf.GGUFReader(path)
    get = lambda key: reader.fields["tokenizer.ggml." + key].contents()
    tokens, types = get("tokens"), get("token_type")
    if get("model") == "llama":
        os.environ["PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"] = "python"
        from sentencepiece import sentencepiece_model_pb2
        proto = sentencepiece_model_pb2.ModelProto()
        unk = get("unknown_token_id")
        for i, (token, score, kind) in enumerate(zip(tokens, get("scores"), types)):
            # the true unknown token is marked control in some files, padding unknown
            kind = 2 if i == unk else 5 if kind == 2 else kind
            proto.pieces.add(piece=token, score=score, type=kind)
        proto.trainer_spec.model_type = 2
        proto.trainer_spec.byte_fallback = True
        proto.normalizer_spec.name = "identity"
        proto.normalizer_spec.add_dummy_prefix = True
        proto.normalizer_spec.remove_extra_whitespaces = False
        return spm.SentencePieceProcessor(model_proto=proto.SerializeToString())
    merges = [tuple(m.split(" ")) for m in get("merges")]
    added = {i for i, kind in enumerate(types) if kind in (3, 4)}
    tok = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    normalizer, tok.pre_tokenizer = pre
    if normalizer is not None:
        tok.normalizer = normalizer
    tok.decoder = decoders.ByteLevel()
    tok.add_tokens([AddedToken(tokens[i], special=False, normalized=False) for i in sorted(added) if types[i] == 4])
    tok.add_special_tokens([AddedToken(tokens[i], special=True, normalized=False) for i in sorted(added) if types[i] == 3])
    assert all(tok.token_to_id(tokens[i]) == i for i in added)
    return tok


REAL = {
    "deepseek-coder": (None, deepseek_coder()),
    "gpt-neox": (normalizers.NFC(), byte_level(True)),
    "mpt": (normalizers.NFC(), byte_level(True)),
    "llama-spm": None,
    "phi-3": None,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "tokenizer")
    parser.add_argument("--random", type=int, default=120)
    args = parser.parse_args()
    args.out.mkdir(exist_ok=True)
    texts = TEXTS + random_texts(args.random)
    write(args.out / "texts.json", {"made_with": {"tokenizers": tokenizers.__version__,
                                                  "sentencepiece": spm.__version__}, "texts": texts})
    for name, tok in tiny_tokenizers().items():
        folder = args.out / name
        folder.mkdir(exist_ok=True)
        write(folder / "tokenizer.json", json.loads(tok.to_str()))
        write(folder / "golden.json", golden(tok, texts))
    for name, tok in tiny_sentencepiece(args.out):
        write(args.out / name / "golden.json", golden(tok, texts))
        if name == "spm_bpe":
            (args.out / "llama2c").mkdir(exist_ok=True)
            data, count = Llama2c.export(tok)
            (args.out / "llama2c" / "tokenizer.bin").write_bytes(data)
            write(args.out / "llama2c" / "golden.json",
                  {"vocab_size": count, **golden(Llama2c.read(data, count), texts)})
    if args.data:
        stories = Llama2c.read((args.data / "stories260K" / "tokenizer.bin").read_bytes(), 512)
        write(args.out / "stories260K.json", golden(stories, texts))
        for name, pre in REAL.items():
            tok = from_gguf(args.data / "gguf_vocab" / f"ggml-vocab-{name}.gguf", pre)
            write(args.out / f"{name}.json", golden(tok, texts))
    invalid = [bytes(s) for s in ([0x80], [0xC0, 0x80], [0xC3], [0xC3, 0x28], [0xE2, 0x82], [0xE2, 0x28, 0xA1],
                                  [0xED, 0xA0, 0x80], [0xF0, 0x9F, 0x98], [0xF4, 0x90, 0x80, 0x80], [0xFF, 0xFE],
                                  [0xF0, 0x80, 0x80, 0x41], [0xF8, 0x88, 0x80, 0x80, 0x80], [0xE0, 0x9F, 0x80])]
    rng = random.Random(7)
    invalid += [bytes(rng.choice([rng.randrange(256), rng.choice(b"ab \xe2\x82\xac\xf0\x9f\x98\x80\xc3\xa9")])
                      for _ in range(rng.randint(1, 12))) for _ in range(200)]
    write(args.out / "invalid_utf8.json",
          [[b.hex(), b.decode("utf-8", "replace").encode("utf-8").hex()] for b in invalid])


if __name__ == "__main__":
    main()
