#!/usr/bin/env python3
"""Rows of where attention looks and of what pairs add to its scores: `ropewalk inspect --text` on windows of held-out text, averaged.

usage: ROPEWALK_PROGRAM=build/ropewalk evidence_attention.py [SMOLLM2_JSON]     JSON lines on standard output
    The embedded model on 8 windows at its trained 1024 tokens, 2 and 4 times that; SmolLM2-135M-Instruct (fetched, scripts/get_smollm2.sh)
    on one window of its trained 8192. SMOLLM2_JSON: what `ropewalk inspect FILE --text heldout.txt --lengths
    SMOLLM2_TOKENS --json --threads 1` printed, in place of running it.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = os.environ.get("ROPEWALK_PROGRAM", str(ROOT / "build" / "ropewalk"))
WINDOWS, LENGTHS, BOS = 8, (1024, 2048, 4096), 0
SMOLLM2_TOKENS = 8192  # its trained length: minutes


def run(*words):
    return subprocess.run(list(map(str, words)), check=True, stdout=subprocess.PIPE).stdout


def inspect(*words):
    return json.loads(run(PROGRAM, "inspect", *words, "--json"))


def rounded(value):
    return float(f"{value:.6g}")


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def summed(shares, pairs):
    return sum(shares[i] for i in pairs)


def rows_of(model, pages):
    """Of inspect's answers on the windows of one model; every answer has the same methods and lengths."""
    trained = pages[0]["trained_length"]
    within = max(p["tokens"] for p in pages[0]["positions"]["attention"] if p["tokens"] <= trained)
    for same in zip(*(page["positions"]["attention"] for page in pages)):
        p = same[0]
        about = {"model": model, "method": p["method"], "tokens": p["tokens"], "trained": trained, "windows": len(same)}
        layers = range(len(p["layers"]))
        for group, chosen in (("first", layers[:1]), ("later", layers[1:])):
            of = [q["layers"][i] for q in same for i in chosen]
            logits = [layer["logits"] for layer in of]
            slow = logits[0]["incomplete"]
            beyond = [b for b, edge in enumerate(p["edges"][:-1]) if edge >= trained]
            yield {
                "what": "layers",
                **about,
                "layers": group,
                "first_token": rounded(mean(layer["first_token"] for layer in of)),
                "beyond": rounded(mean(summed(layer["mass"], beyond) for layer in of)),
                "pairs": len(logits[0]["position"]),
                "incomplete": len(slow),
                "position": rounded(mean(sum(s["position"]) for s in logits)),
                "incomplete_position": rounded(mean(summed(s["position"], slow) for s in logits)),
                "incomplete_content": rounded(mean(summed(s["content"], slow) for s in logits)),
                "unseen": rounded(mean(sum(s["unseen"]) for s in logits)),
                "by_distance": rounded(mean(s["by_distance"] for s in logits)),
            }
            for b, keys in enumerate(p["keys"]):
                known = all(s["score"][b] is not None for s in logits)
                yield {
                    "what": "distance",
                    **about,
                    "layers": group,
                    "from": p["edges"][b],
                    "to": p["edges"][b + 1],
                    "weight": rounded(mean(layer["mass"][b] for layer in of) / keys),  # of one key
                    "score": rounded(mean(s["score"][b] for s in logits)) if known else None,
                    "score_incomplete": rounded(mean(s["score_incomplete"][b] for s in logits)) if known else None,
                }
        if p["method"] == "as shipped" and p["tokens"] == within:
            logits = [layer["logits"] for q in same for layer in q["layers"]]
            for pair in pages[0]["positions"]["rotations"][0]["pairs"]:
                i = pair["pair"]
                yield {
                    "what": "pair",
                    "model": model,
                    "pair": i,
                    "rotations": rounded(pair["trained_rotations"]),
                    "position": rounded(mean(s["position"][i] for s in logits)),
                    "content": rounded(mean(s["content"][i] for s in logits)),
                }


def embedded(folder, text):
    ids = json.loads(run(PROGRAM, "tokenize", ROOT / "models", "--text", text))
    step = len(ids) // WINDOWS
    for w in range(WINDOWS):
        window = folder / f"window{w}.json"
        window.write_text(json.dumps([BOS, *ids[w * step : w * step + LENGTHS[-1] - 1]]), encoding="utf-8")
        yield inspect(ROOT / "models", "--ids", window, "--lengths", ",".join(map(str, LENGTHS)))


def smollm2(text):
    file = run(ROOT / "scripts" / "get_smollm2.sh", pathlib.Path(PROGRAM).resolve().parent / "models").decode().splitlines()[0]
    return inspect(file, "--text", text, "--lengths", SMOLLM2_TOKENS, "--threads", 1)


def main():
    header = {"format": "ropewalk-evidence", "schema": 1, "command": "ROPEWALK_PROGRAM=build/ropewalk scripts/evidence_attention.py"}
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        text = folder / "heldout.txt"
        text.write_bytes(run(ROOT / "scripts" / "heldout_text.sh"))
        rows = list(rows_of("embedded", list(embedded(folder, text))))
        given = sys.argv[1:]
        larger = json.loads(pathlib.Path(given[0]).read_text(encoding="utf-8")) if given else smollm2(text)
        rows += rows_of("SmolLM2-135M", [larger])
    for line in (header, *rows):
        print(json.dumps(line, ensure_ascii=False))


if __name__ == "__main__":
    main()
