"""Compares the explorer's JavaScript with the program: runs a page of `ropewalk inspect --html` in a headless
Chromium, asks its formulas for frequencies, unseen angles, decay and the longest context, and sets them beside
`ropewalk inspect --json` of the same settings. Called by scripts/check_report.sh.

usage: check_explorer.py BROWSER ROPEWALK MODEL"""

import html
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

PROBE = """<script>
window.addEventListener("load", () => {
  const out = SPECS.map(({method, spec}) => {
    const f = Explorer.frequencies(method, spec), plain = Explorer.frequencies("none", spec);
    return {f, amplitude: Explorer.amplitude(method, spec), longest: Explorer.longestContext(f, 65536),
            unseen: f.map((x, i) => Explorer.unseenShare(plain[i], spec.trained, x, spec.length)),
            incomplete: Explorer.incompletePairs(plain, spec.trained),
            decay: DISTANCES.map((m) => ({expected: Explorer.expected(f, m), bound: Explorer.bound(f, m)}))};
  });
  document.documentElement.dataset.probe = JSON.stringify({out, ready: document.documentElement.dataset.ready});
});
</script>
</body>"""

# Every rope_type that a dictionary can say and the explorer draws.
DICTIONARIES = {
    "none": {"rope_type": "default"},
    "linear": {"rope_type": "linear"},
    "dynamic": {"rope_type": "dynamic"},
    "yarn": {"rope_type": "yarn"},
    "llama3": {"rope_type": "llama3", "low_freq_factor": 1, "high_freq_factor": 4},
}


def inspect(program, model, *arguments):
    result = subprocess.run([program, "inspect", model, "--json", *map(str, arguments)], capture_output=True, text=True,
                            check=True, timeout=120)
    return json.loads(result.stdout)["positions"]


def close(a, b, relative, what):
    if not math.isclose(a, b, rel_tol=relative, abs_tol=1e-9):
        sys.exit(f"check_explorer: {what}: the page says {a}, the program {b}")


def main():
    browser, program, model = sys.argv[1:]
    plain = inspect(program, model)["rotations"][0]
    trained = inspect(program, model)["trained_length"]
    cases, specs = [], []
    for method, dictionary in DICTIONARIES.items():
        for factor in (2, 8):
            length = trained * factor
            entry = dict(dictionary)
            if method != "none":
                entry.update(factor=factor)
            if method in ("yarn", "llama3"):
                entry["original_max_position_embeddings"] = trained
            cases.append((method, inspect(program, model, "--rope-scaling", json.dumps(entry), "--length", length)))
            specs.append({"method": method, "spec": {"base": plain["base"], "dim": plain["rotary_dim"], "factor": factor,
                                                     "trained": trained, "length": length}})
    # Methods without a dictionary, by the decay table.
    by_name = {}
    for name in ("ntk", "ntk-fixed", "ntk-mixed", "by-parts", "by-parts-repo", "hope"):
        got = inspect(program, model, "--methods", name, "--factors", 4, "--length", 4 * trained)
        lines = [d for d in got["decay"] if d["method"] == name]
        if not lines:
            sys.exit(f"check_explorer: no decay line for {name}")
        by_name[name] = lines[0]["points"]
        specs.append({"method": name, "spec": {"base": plain["base"], "dim": plain["rotary_dim"], "factor": 4,
                                               "trained": trained, "length": 4 * trained}})
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder) / "page.html"
        subprocess.run([program, "inspect", model, "--html", "-o", page], check=True, capture_output=True, timeout=120)
        probe = PROBE.replace("SPECS", json.dumps(specs)).replace("DISTANCES", json.dumps(
            sorted({p["distance"] for points in by_name.values() for p in points})))
        text = page.read_text(encoding="utf-8")
        page.write_text(text[: text.rindex("</body>")] + probe + text[text.rindex("</body>") + 7:], encoding="utf-8")
        dom = subprocess.run([browser, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile",
                              "--dump-dom", "--virtual-time-budget=8000", f"file://{page}"], capture_output=True, text=True,
                             timeout=180).stdout
    found = re.search(r'data-probe="([^"]*)"', dom)
    if not found:
        sys.exit("check_explorer: the page's script did not finish")
    seen = json.loads(html.unescape(found.group(1)))
    if seen["ready"] != "yes":
        sys.exit("check_explorer: the page is not ready")
    for (method, expected), out in zip(cases, seen["out"]):
        rotation = expected["rotations"][0]
        for pair, f, unseen in zip(rotation["pairs"], out["f"], out["unseen"]):
            close(f, pair["frequency"], 1e-12, f"{method}: frequency of pair {pair['pair']}")
            close(unseen, pair["unseen_share"], 1e-9, f"{method}: unseen share of pair {pair['pair']}")
        close(out["amplitude"], rotation["amplitude"], 1e-12, f"{method}: amplitude")
        close(out["incomplete"], rotation["incomplete_pairs"], 0, f"{method}: incomplete pairs")
        close(out["longest"], min(rotation["longest_context"], 65536), 0, f"{method}: longest context")
    order = sorted({p["distance"] for points in by_name.values() for p in points})
    for (name, points), out in zip(by_name.items(), seen["out"][len(cases):]):
        values = dict(zip(order, out["decay"]))
        for point in points:
            close(values[point["distance"]]["expected"], point["expected"], 1e-8, f"{name}: decay at {point['distance']}")
            close(values[point["distance"]]["bound"], point["bound"], 1e-8, f"{name}: bound at {point['distance']}")
    print(f"check_explorer: {len(cases)} settings and {len(by_name)} methods agree with the program")


main()
