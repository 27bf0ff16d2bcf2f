#!/usr/bin/env python3
"""Builds the documentation as static pages with search: the Markdown of this repository, the API reference of its headers
and the reports of its committed sweeps. Then checks that every link and anchor of the pages leads somewhere.

usage: docs_site.py BUILD      writes BUILD/site; scripts/docs_site.sh calls it with the packages of docs/requirements.txt.
                               BUILD/ropewalk draws the reports.
"""

import html.parser
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\(([^)\s#:]+)[^):]*\)")
FENCE = re.compile(r"(^```.*?^```\n)", re.M | re.S)
BLOCK = re.compile(r"[-*] |\d+\. |\|")  # begins a list or a table
CONFIG = """site_name: Ropewalk
site_dir: {site}
docs_dir: {pages}
use_directory_urls: false
strict: true
theme:
  name: material
  font: false
  features: [navigation.tabs, navigation.indexes, toc.follow]
  palette:
    - media: "(prefers-color-scheme: light)"
      scheme: default
    - media: "(prefers-color-scheme: dark)"
      scheme: slate
plugins: [offline, search]
markdown_extensions:
  - attr_list
  - tables
  - toc: {{permalink: true}}
  - pymdownx.highlight
  - pymdownx.superfences
validation:
  omitted_files: warn
  absolute_links: warn
  unrecognized_links: warn
  anchors: warn
nav:
{nav}"""


def apart(text):
    """Lists and tables apart from the paragraph before: GitHub needs no empty line there, mkdocs does."""
    out, in_block = [], False
    for line in text.splitlines():
        if BLOCK.match(line) and not in_block and out and out[-1].strip() and not out[-1].startswith("    "):
            out.append("")
        in_block = bool(BLOCK.match(line)) or (in_block and bool(line.strip()))
        out.append(line)
    return "\n".join(out) + "\n"


def copy_pages(pages):
    """Every Markdown file where it lies in the repository, so that links stay as they are; and what they link to."""
    shutil.copytree(ROOT / "docs", pages / "docs", ignore=shutil.ignore_patterns("requirements.txt"))
    for name in ("README", "ARCHITECTURE", "CONTRIBUTING", "CHANGELOG", "SECURITY", "models/README"):
        to = pages / f"{name}.md"
        to.parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / f"{name}.md", to)
    subprocess.run([sys.executable, ROOT / "scripts" / "api_docs.py", pages / "docs" / "api"], check=True)
    for page in sorted(pages.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        for target in LINK.findall(FENCE.sub("", text)):
            there = pathlib.Path(os.path.normpath(page.parent / target))
            from_ = ROOT / there.relative_to(pages)
            if not there.exists() and from_.is_file():
                there.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(from_, there)
        parts = FENCE.split(text)
        page.write_text("".join(p if p.startswith("```") else apart(p) if p else "" for p in parts), encoding="utf-8")


def draw_reports(pages, program):
    """The report of every committed sweep, and links to them at the end of the page of results."""
    links = []
    for sweep in sorted((pages / "docs" / "results").glob("*/results.jsonl")):
        report = sweep.with_name("report.html")
        subprocess.run([program, "report", sweep.parent, "-o", report], check=True, stdout=subprocess.DEVNULL)
        links.append(f"- [{sweep.parent.name}]({sweep.parent.name}/report.html)\n")
    index = pages / "docs" / "results" / "README.md"
    text = index.read_text(encoding="utf-8")
    index.write_text(text + "\n## Reports with charts\n\n" + "".join(links), encoding="utf-8")


def navigation(pages):
    """A section for each folder with methods, the rest by hand; every page is in it, or mkdocs fails."""
    def entry(path, depth, title=None):
        return "  " * depth + "- " + (f"{title}: " if title else "") + path + "\n"

    def section(title, paths, depth=1):
        return entry("", depth, title).replace(": \n", ":\n") + "".join(entry(p, depth + 1) for p in paths)

    def methods(folder):
        return [f"docs/{folder}/methods/{p.name}" for p in sorted((pages / "docs" / folder / "methods").glob("*.md"))]

    def reference(name):
        return f"docs/api/{name}.md"

    nav = entry("README.md", 1, "Ropewalk")
    program = ("README", "program", "models", "model-format", "support", "security", "recommendation", "search", "extend-and-convert", "engines",
               "inspect-format", "curves", "results-format", "many-machines", "ranks", "scale")
    nav += section("Program", [f"docs/{n}.md" for n in program])
    tasks = ("passkey", "kv", "ruler", "key-tokens", "pseudo-perplexity", "prefix", "statistics")
    nav += section("Tasks", [f"docs/tasks/{n}.md" for n in tasks] + ["docs/verify.md"])
    nav += section("Rotary", [f"docs/rotary/{n}.md" for n in ("README", "derivation", "dialects", "ops")] + methods("rotary"))
    for folder in ("relative", "absolute"):
        nav += section(folder.capitalize(), [f"docs/{folder}/README.md", *methods(folder)])
    nav += section("Results", ["docs/results/README.md", "docs/results/embedded/README.md", "docs/results/zoo/README.md",
                               "docs/atlas/README.md",
                               "docs/evidence/README.md", "models/README.md",
                               "docs/performance.md", "docs/encodings.md"])
    nav += section("Library", ["docs/python.md", "docs/python-torch.md", "docs/python-sweep.md",
                                "docs/python-transformers.md", "docs/python-vllm.md", "docs/zoo.md", "docs/attention.md", "docs/cuda.md",
                                "docs/scoring-engine.md",
                                "docs/conformance/README.md",
                                reference("index")]
                   + [reference(p.stem) for p in sorted((pages / "docs" / "api").glob("*.md")) if p.stem != "index"])
    return nav + section("Project", ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/releasing.md", "CHANGELOG.md", "SECURITY.md"])


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.ids, self.links = set(), []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        for key, value in attrs:
            if key == "id" or (key == "name" and tag == "a"):
                self.ids.add(value)
            elif key in ("href", "src") and value and tag != "base":
                self.links.append(value)


def broken_links(site):
    every = {path: Page(path) for path in site.rglob("*.html") if path.name not in ("404.html", "report.html")}
    count = 0
    for path, page in every.items():
        for link in page.links:
            url = urllib.parse.urlsplit(link)
            if url.scheme or url.netloc:
                continue
            count += 1
            to = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
            where = f"{path.relative_to(site)}: {link}"
            if not to.is_file():
                yield f"{where}: there is no such file"
            elif url.fragment and to in every and urllib.parse.unquote(url.fragment) not in every[to].ids:
                if url.fragment != "__skip" and not url.fragment.startswith("__"):
                    yield f"{where}: there is no such anchor"
    if len(every) < 80 or count < 5000:
        yield f"only {len(every)} pages with {count} links were made"
    print(f"{len(every)} pages, {count} links")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1]).resolve()
    pages, site = build / "site-pages", build / "site"
    for folder in (pages, site):
        shutil.rmtree(folder, ignore_errors=True)
    pages.mkdir(parents=True)
    copy_pages(pages)
    draw_reports(pages, build / "ropewalk")
    config = build / "mkdocs.yml"
    config.write_text(CONFIG.format(site=site, pages=pages, nav=navigation(pages)), encoding="utf-8")
    # Not --quiet, with which strict counts no warnings. The variable leaves out a note about another program.
    subprocess.run([sys.executable, "-m", "mkdocs", "build", "--config-file", config], check=True,
                   env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    broken = list(broken_links(site))
    if broken:
        sys.exit("\n".join(broken))


if __name__ == "__main__":
    main()
