#!/usr/bin/env python3
"""Key tokens and LongPPL of PyPI's longppl 0.3.0 against the library's, token by token.

    longppl.py MODEL TEXT --longppl FOLDER --dump KEY_TOKENS_DUMP --tokens N --document N [--short-context K]
               [--theirs FILE.json]

MODEL, a folder or a GGUF file, is evaluator and evaluated model. (Of a GGUF file transformers may add a BOS that the
file does not ask for; the library then adds it too.) FOLDER is where longppl lies
(pip install --no-deps --target FOLDER longppl==0.3.0); it needs PyTorch and transformers, and gguf for such files.

The first N tokens of TEXT are cut into documents, as the library cuts them, and longppl gets one after the other; N
has to fill the last one. Its
losses are recorded where it computes them. --theirs keeps what longppl said, so that it need not run again.

Ends with 1 where a decision differs whose LSD and LCL are not within rounding of a threshold, where spans differ, or
where a perplexity does.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

ROUNDING = 1e-3  # nats; the two compute sums in other orders
LSD, LCL = 2.0, -2.0


def load(path):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, more = (path, {}) if path.is_dir() else (path.parent, {"gguf_file": path.name})
    tokenizer = AutoTokenizer.from_pretrained(folder, **more)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **more).eval()
    return model, tokenizer


class Document:
    """A tokenizer that has tokenised already: longppl gets the tokens of one document, offsets in the whole text."""

    def __init__(self, front, ids, offsets):
        self.front, self.ids, self.offsets = front, ids, offsets

    def __call__(self, text, add_special_tokens=True, **_):
        import torch

        front = self.front if add_special_tokens else []
        offsets = [[0, 0]] * len(front) + self.offsets
        return {"input_ids": torch.tensor([front + self.ids]), "offset_mapping": torch.tensor([offsets])}


def recorded(call):
    """The result of `call`, and every loss that a CrossEntropyLoss returned meanwhile."""
    import torch

    losses, original = [], torch.nn.CrossEntropyLoss

    class Recorder(original):
        def forward(self, *arguments):
            losses.append(super().forward(*arguments))
            return losses[-1]

    torch.nn.CrossEntropyLoss = Recorder
    try:
        return call(), [loss.flatten().tolist() for loss in losses]
    finally:
        torch.nn.CrossEntropyLoss = original


def ask_longppl(args):
    """What longppl says of each document."""
    sys.path.insert(0, str(args.longppl))
    from longppl import longppl

    model, tokenizer = load(args.model)
    whole = args.text.read_text(encoding="utf-8")
    encoded = tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
    ids, offsets = encoded["input_ids"][: args.tokens], encoded["offset_mapping"][: args.tokens]
    text = whole[: offsets[-1][1]]
    if tokenizer(text, add_special_tokens=False)["input_ids"] != ids:
        sys.exit(f"the first {args.tokens} tokens are not the tokens of their text; give another --tokens")
    front = tokenizer("", add_special_tokens=True)["input_ids"]
    per_document, step = args.document - len(front), args.short_context // 4

    spans = []
    find = longppl.find_key_token
    longppl.find_key_token = lambda *a: spans.append(find(*a)) or spans[-1]
    documents = []
    for begin in range(0, len(ids), per_document):
        document = Document(front, ids[begin : begin + per_document], offsets[begin : begin + per_document])
        result, losses = recorded(
            lambda document=document: longppl.compute_longppl(
                text, model, model, document, document, trunc_len=args.short_context, sliding_window=step
            )
        )
        tokens, at = [], begin - len(front) + args.short_context
        for full, short in zip(losses[:-1:2], losses[1:-1:2], strict=True):
            tokens += [[at + i, f, s] for i, (f, s) in enumerate(zip(full, short, strict=True))]
            at += len(full)
        documents.append(
            {
                "tokens": tokens,  # index in the text, loss with all context, with the short one
                "spans": spans[-1].tolist(),  # in characters
                "longppl": None if result["longppl"] is None else float(result["longppl"]),
                "keys": result["n_key_token"] or 0,
                "ppl": float(result["ppl"]),
                "nll": losses[-1],
            }
        )
        print(f"longppl: {begin + len(document.ids)} of {len(ids)} tokens", file=sys.stderr)
    return {"text": text, "ids": ids, "front": front, "documents": documents}


def byte_spans(text, spans):
    """Characters to bytes; those that touch or overlap become one, also over the ends of documents."""
    ends = [0]
    for character in text:
        ends.append(ends[-1] + len(character.encode()))
    merged = []
    for begin, end in spans:
        if merged and ends[begin] <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], ends[end])
        else:
            merged.append([ends[begin], ends[end]])
    return merged


def ask_library(args, theirs):
    bos = theirs["front"][0] if theirs["front"] else -1
    with tempfile.NamedTemporaryFile() as text:
        text.write(theirs["text"].encode())
        text.flush()
        command = [args.dump, args.model, text.name, args.document, args.short_context, bos]
        return json.loads(subprocess.check_output(list(map(str, command))))


def is_key(full, short):
    return short - full > LSD and -full > LCL


def compare(theirs, ours):
    wrong = []
    if ours["ids"] != theirs["ids"]:
        return ["the token ids differ"]
    ours_at = {token: (full, short) for token, full, short in ours["tokens"]}
    decided = keys = close = differ = 0
    apart = 0.0
    for document in theirs["documents"]:
        for token, full, short in document["tokens"]:
            # What the first window scores has the same context twice: the library does not compute it.
            mine = ours_at.get(token, (full, full))
            apart = max(apart, abs(full - mine[0]), abs(short - mine[1]))
            near = min(abs(short - full - LSD), abs(-full - LCL)) < ROUNDING
            decided, keys, close = decided + 1, keys + is_key(full, short), close + near
            if is_key(full, short) != is_key(*mine):
                differ += 1
                print(f"token {token}: LSD {short - full:.6f} and {mine[1] - mine[0]:.6f}, LCL {-full:.6f} and {-mine[0]:.6f}")
                if not near:
                    wrong.append(f"the decision about token {token} differs")
    print(f"{decided} decisions, {keys} key tokens, {differ} differ; {close} lie within {ROUNDING} of a threshold")
    print(f"losses at most {apart:.2e} nats apart")

    spans = byte_spans(theirs["text"], [s for d in theirs["documents"] for s in d["spans"]])
    print(f"{len(spans)} spans of longppl, {len(ours['spans'])} of the library, equal: {spans == ours['spans']}")
    if spans != ours["spans"] and differ == 0:
        wrong.append("the spans differ")

    count = sum(d["keys"] for d in theirs["documents"])
    nats = sum(d["keys"] * math.log(d["longppl"]) for d in theirs["documents"] if d["keys"])
    nll = [x for d in theirs["documents"] for x in d["nll"]]
    pairs = [("LongPPL", math.exp(nats / count), ours["longppl"])] if count else []
    pairs += [("PPL", math.exp(sum(nll) / len(nll)), ours["perplexity"])]
    print(f"{count} key tokens of the evaluated model, {ours['key_tokens']} by the library")
    if [d["keys"] for d in theirs["documents"]] != ours["window_keys"] and differ == 0:
        wrong.append("the numbers of key tokens of documents differ")
    for name, a, b in pairs:
        print(f"{name}: {a:.6f} and {b:.6f}, {abs(a / b - 1):.1e} apart")
        if differ == 0 and not abs(a / b - 1) < ROUNDING:
            wrong.append(f"{name} differs")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--longppl", type=pathlib.Path)
    parser.add_argument("--dump", type=lambda path: pathlib.Path(path).resolve(), required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--document", type=int, required=True, help="tokens, BOS included")
    parser.add_argument("--short-context", type=int, default=4096)
    parser.add_argument("--theirs", type=pathlib.Path, help="what longppl said; written where it does not exist")
    args = parser.parse_args()
    if args.theirs and args.theirs.exists():
        theirs = json.loads(args.theirs.read_text())
    else:
        theirs = ask_longppl(args)
        if args.theirs:
            args.theirs.write_text(json.dumps(theirs))
    wrong = compare(theirs, ask_library(args, theirs))
    for line in wrong:
        print("WRONG:", line)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
