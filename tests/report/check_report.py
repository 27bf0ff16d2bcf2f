"""Checks pages of the report in a headless Chromium: no script error, no request to anywhere, every
chart drawn, nothing wider than a phone, both themes. Called by scripts/check_report.sh."""

import argparse
import html
import json
import pathlib
import re
import subprocess
import sys
import tempfile

# Runs inside a copy of the page, after everything else, and leaves what it saw in the document.
PROBE = """<script>
window.addEventListener("load", () => {
  const drawn = [...document.querySelectorAll("canvas")].map((canvas) => {
    const {width, height} = canvas;
    if (!width || !height) return 0;
    const pixels = canvas.getContext("2d").getImageData(0, 0, width, height).data;
    const colours = new Set();
    let painted = 0;
    for (let i = 0; i < pixels.length; i += 4) {
      if (pixels[i + 3] === 0) continue;
      ++painted;
      if (pixels[i + 3] === 255) colours.add((pixels[i] << 16) | (pixels[i + 1] << 8) | pixels[i + 2]);
    }
    return painted / (width * height) > 0.005 ? colours.size : 0;
  });
  const root = document.documentElement;
  const seen = {
    ready: root.dataset.ready, error: root.dataset.error, drawn, theme: root.dataset.theme,
    requests: performance.getEntriesByType("resource").map((r) => r.name),
    overflow: root.scrollWidth - window.innerWidth, width: window.innerWidth,
    images: document.images.length, frames: window.frames.length, title: document.title,
    tables: document.querySelectorAll("table").length,
    headings: [...document.querySelectorAll("h2")].map((h) => h.textContent),
    background: getComputedStyle(document.body).backgroundColor,
    settings: document.querySelectorAll("pre").length,
    unwritten: (document.body.innerText.match(/\\[object [A-Z]\\w+\\]|\\bundefined\\b|\\bNaN\\b/) || [""])[0],
  };
  root.dataset.probe = JSON.stringify(seen);
});
</script>
</body>"""


def run(browser, page, width, theme, shot=None):
    command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
               "--host-resolver-rules=MAP * ~NOTFOUND", "--disable-background-networking",
               "--force-device-scale-factor=1", f"--window-size={width},5000"]
    with tempfile.TemporaryDirectory() as profile:
        command += [f"--user-data-dir={profile}"]
        command += [f"--screenshot={shot}"] if shot else ["--dump-dom", "--virtual-time-budget=4000"]
        command += [f"file://{page}?theme={theme}"]
        return subprocess.run(command, capture_output=True, text=True, timeout=120).stdout


def problems_of(page, seen, width, theme):
    if seen.get("ready") != "yes" or seen.get("error"):
        return [f"{page.name} at {width} px, {theme}: its script failed: {seen.get('error')}"]
    found = []
    if seen["requests"]:
        found.append(f"it requested {seen['requests']}")
    if len(seen["drawn"]) < 2 or min(seen["drawn"]) < 5:
        found.append(f"blank charts (colours in each: {seen['drawn']})")
    if seen["overflow"] > 0:
        found.append(f"{seen['overflow']} px wider than the window of {seen['width']}")
    if seen["images"] or seen["frames"] or not seen["title"].endswith(" - Ropewalk"):
        found.append("markup from the data became part of the page")
    if seen["unwritten"]:
        found.append(f"it says {seen['unwritten']!r}")
    if page.stem in ("one", "two", "hostile") and not {
            "Tasks", "Who left early", "Ladder", "Effective length"} <= set(seen["headings"]):
        found.append(f"tasks, the race, the ladder or effective lengths are missing: {seen['headings']}")
    if seen["theme"] != theme:
        found.append(f"theme {seen['theme']} instead of {theme}")
    if not seen["headings"] or seen["headings"][0] not in ("Recommendations", "Side by side", "Warnings", "Expected score C(m)"):
        found.append(f"the answer does not come first: {seen['headings']}")
    if seen["tables"] < len(seen["drawn"]):
        found.append("a chart without a table behind it")
    return [f"{page.name} at {width} px, {theme}: {p}" for p in found]


def static_problems(page):
    text = page.read_text(encoding="utf-8", errors="replace")
    loads = re.findall(r"""(?:src|href)\s*=\s*["']?[a-z]+:|@import|url\(""", text)
    return [f"{page.name}: loads {load}" for load in loads] if "hostile" not in page.name else []


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("browser")
    parser.add_argument("pages", nargs="+", type=pathlib.Path)
    parser.add_argument("--shots", type=pathlib.Path, help="folder for pictures")
    args = parser.parse_args()
    found = []
    views = 0
    for page in args.pages:
        page = page.resolve()
        found += static_problems(page)
        probed = pathlib.Path(tempfile.mkstemp(suffix=".html")[1])
        try:
            probed.write_text(page.read_text(encoding="utf-8", errors="replace")
                              .replace("</body>", PROBE), encoding="utf-8")
            backgrounds = set()
            for width, theme in ((1280, "light"), (390, "dark"), (360, "light")):
                views += 1
                if args.shots:
                    args.shots.mkdir(parents=True, exist_ok=True)
                    run(args.browser, page, width, theme,
                        args.shots.resolve() / f"{page.stem}-{width}-{theme}.png")
                dom = run(args.browser, probed, width, theme)
                match = re.search(r'data-probe="([^"]*)"', dom)
                if not match:
                    found.append(f"{page.name} at {width} px, {theme}: the page did not finish loading")
                    continue
                seen = json.loads(html.unescape(match.group(1)))
                backgrounds.add((theme, seen["background"]))
                found += problems_of(page, seen, width, theme)
            if len({colour for _, colour in backgrounds}) != 2:
                found.append(f"{page.name}: light and dark are not told apart: {sorted(backgrounds)}")
        finally:
            probed.unlink()
    for problem in found:
        print(f"check_report: {problem}", file=sys.stderr)
    if not found:
        print(f"check_report: {len(args.pages)} pages, {views} views: charts drawn, no error, no request")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
