"""The llama.cpp profiles that a ladder prints, pasted into a real llama-server: does it start them, and does
`ropewalk verify` say that each runs what the ladder means?

usage: llamacpp_ladder.py BUILD_DIR LLAMA_SERVER     (scripts/verify_llamacpp.sh builds both)

The ladder is that of a sweep of the embedded model, perplexity alone, by the factors 2 and 4 of YaRN. Of the file to
paste only MODEL.gguf is replaced. The first profile has no scaling and no positions beyond the trained length, of
which verify asks: it has to answer.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.request

from verify_llamacpp import ROOT, Server

MODEL = str(ROOT / "models")
SWEEP = "--methods none,yarn --factors 2,4 --lengths 1024,2048,4096 --tasks perplexity --no-race".split()


def profiles(program, text, folder):
    """The text of ladder.ini, and (name, factor, tokens) of its profiles."""
    subprocess.run([program, "sweep", MODEL, "--text", text, *SWEEP, "-o", f"{folder}/sweep"], check=True, capture_output=True)
    report = json.loads(subprocess.check_output([program, "report", f"{folder}/sweep", "--json"]))
    ladder = report["sweeps"][0]["ladder"]
    ini = next(s["setting"] for s in ladder["settings"] if s["engine"].startswith("llama.cpp"))
    found = []
    for name, lines in re.findall(r"^\[(.*)\]\n((?:.+\n?)*)", ini, re.MULTILINE):
        scale = re.search(r"^rope-scale = (.*)$", lines, re.MULTILINE)
        found.append((name, float(scale[1]) if scale else 1.0, int(re.search(r"^c = (\d+)$", lines, re.MULTILINE)[1])))
    rungs = {(rung["factor"], rung["up_to"]) for rung in ladder["rungs"]}
    if {(factor, tokens) for _, factor, tokens in found} != rungs or len(found) < 3:
        sys.exit(f"llamacpp_ladder.py: rungs {sorted(rungs)}, profiles {found}")
    return ini, found


def answers(url, name):
    """Whether a profile completes a prompt."""
    body = json.dumps({"model": name, "prompt": "And the king said", "max_tokens": 4}).encode()
    request = urllib.request.Request(url + "/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return bool(json.load(answer)["choices"][0]["text"])


def main():
    program, server, wrong = pathlib.Path(sys.argv[1]) / "ropewalk", sys.argv[2], 0
    with tempfile.TemporaryDirectory() as folder:
        gguf, ini = f"{folder}/model.gguf", pathlib.Path(folder) / "ladder.ini"
        text = pathlib.Path(folder) / "text.txt"
        text.write_bytes(subprocess.check_output([ROOT / "scripts" / "heldout_text.sh"]))
        subprocess.run([program, "convert", MODEL, "-o", gguf], check=True, capture_output=True)
        setting, found = profiles(program, str(text), folder)
        ini.write_text(setting.replace("MODEL.gguf", gguf) + "\n")
        print(setting)
        with Server(server, ["--models-preset", str(ini)]) as s:
            for name, factor, tokens in found:
                if not answers(s.url, name):
                    sys.exit(f"llamacpp_ladder.py: {name} has no answer")
                if factor == 1:
                    print(f"ok    {name}: answers")
                    continue
                for asked in sorted({factor, *(other for _, other, _ in found if other > 1)}):
                    run = subprocess.run(
                        [program, "verify", s.url, "--model", MODEL, "--text", str(text), "--served-model", name]
                        + ["--method", "yarn", "--factor", str(asked), "--length", str(tokens - 16), "--json"],
                        capture_output=True,
                        text=True,
                    )
                    if not run.stdout:
                        sys.exit(f"llamacpp_ladder.py: {name}: {run.stderr}")
                    said = json.loads(run.stdout)
                    good = said["verdict"] == ("asked" if asked == factor else "other")
                    wrong += not good
                    first, second = said["candidates"][:2]
                    print(
                        f"{'ok   ' if good else 'WRONG'} {name}, asked for yarn with factor {asked:g} at {said['length']} tokens: "
                        f"{said['verdict']}, nearest {first['name']} at {first['mean']:.4f} nats, then {second['name']} at "
                        f"{second['mean']:.4f}; noise {said['noise']:.4f}"
                    )
    if wrong:
        sys.exit(f"llamacpp_ladder.py: {wrong} verdicts are wrong")


if __name__ == "__main__":
    main()
