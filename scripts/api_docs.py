#!/usr/bin/env python3
"""Makes the API reference in Markdown. Of the public headers a page for each folder: each comment, and the declaration below
it without bodies; of the Python package a page for each module (python_api_docs.py). `make docs` puts it into the site.

usage: api_docs.py FOLDER | --check     --check writes nothing and fails where a header belongs to no page
"""

import pathlib
import re
import sys

import python_api_docs

ROOT = pathlib.Path(__file__).resolve().parent.parent
C_HEADERS = {"ropewalk.h": "capi", "ropewalk_attention.h": "capi_attention"}  # shown as they are, and their targets
FOLDERS = ("base", "rotary", "absolute", "relative", "plan", "attention", "ranks", "linear", "io", "tokenizer", "config", "engines",
           "analysis", "model", "convert", "eval")  # from the left to the right of ARCHITECTURE.md
INTRO = """# API reference

Made from the headers and from the Python package. In C++ everything is in namespace `ropewalk`. Link `ropewalk::<folder>` of the
folder whose header you include.
[ARCHITECTURE.md](../../ARCHITECTURE.md) says what belongs where.

"""


def without_bodies(code):
    """Function bodies and constructors' initialisers become a semicolon, private members go."""
    out, i = "", 0
    while i < len(code):
        if code.startswith("//", i):  # comments may hold braces
            end = code.index("\n", i) if "\n" in code[i:] else len(code)
            out += code[i:end]
            i = end
            continue
        if code[i] == "{" and re.search(r"(\)|\bconst|\bnoexcept)\s*$", out):
            depth = 0
            while True:
                depth += {"{": 1, "}": -1}.get(code[i], 0)
                i += 1
                if depth == 0:
                    break
            start = max(out.rfind(";"), out.rfind("public:"), 0)
            initialiser = re.search(r"\)\s*:\s", out[start:])
            out = out[:start + initialiser.start() + 1] if initialiser else out.rstrip()
            out += ";"
            continue
        out += code[i]
        i += 1
    return re.sub(r"\n+ private:\n.*?(?=\n};)", "", out, flags=re.S)


def namespace_body(text):
    """What stands in namespace ropewalk, without namespace internal."""
    body = text[text.index("namespace ropewalk {") + len("namespace ropewalk {"):text.rindex("}  // namespace ropewalk")]
    return re.sub(r"namespace internal \{.*?\}  // namespace internal\n", "", body, flags=re.S)


def chunks(body):
    """Declarations that belong together: separated by empty lines outside of braces."""
    chunk, depth = [], 0
    for line in body.splitlines() + [""]:
        if not line.strip() and depth == 0:
            if chunk:
                yield chunk
            chunk = []
            continue
        chunk.append(line)
        code = line.split("//")[0]
        depth += code.count("{") - code.count("}")


def prose(comments):
    """Comment lines as Markdown; what is indented stays as it is, as code."""
    lines = [re.sub(r"^// ?", "", line) for line in comments]
    out, code = [], False
    for line in lines:
        indented = line.startswith("  ")
        if indented != code:
            out.append("")
        code = indented
        # Outside of code, Markdown would take these for tags and emphasis.
        escaped = re.sub(r"(`[^`]*`)|([<*])", lambda m: m[1] or "\\" + m[2], line)
        out.append("    " + line if indented else escaped)
    return "\n".join(out)


def names(code):
    """What the declarations of a chunk are called."""
    plain = re.sub(r"//.*", "", code)
    depth, top = 0, ""
    for c in plain:
        depth -= c == "}"
        if depth == 0:
            top += c
        depth += c == "{"
    found = []
    for statement in top.replace("decltype(auto)", "auto").split(";"):
        if "static_assert" in statement:
            continue
        statement = re.sub(r"template\s*<[^{}]*?>\s*(?=[a-z])", "", statement)
        named = (re.search(r"\b(?:struct|class|enum class|using)\s+(\w+)", statement)
                 or re.search(r"([\w]+)\s*\(", statement) or re.search(r"\b(k[A-Z]\w+)\s*=", statement))
        if named and named[1] not in found:
            found.append(named[1])
    return ", ".join(found)


def section(path):
    text = path.read_text(encoding="utf-8")
    include = path.relative_to(ROOT / "include")
    intro = re.match(r"((?://.*\n)+)#pragma once", text)
    out = [f"## {include}", ""]
    if intro:
        out += [prose(intro[1].splitlines()), ""]
    for chunk in chunks(namespace_body(text)):
        comments = []
        while chunk and chunk[0].startswith("//"):
            comments.append(chunk.pop(0))
        code = without_bodies("\n".join(chunk)).strip()
        title = names(code)
        if title:
            out += [f"### {title}", ""]
        if comments:
            out += [prose(comments), ""]
        if code:
            out += ["```cpp", code, "```", ""]
    return "\n".join(out)


def pages():
    """(name of the page, its Markdown); index first."""
    headers = {folder: sorted((ROOT / "include" / "ropewalk" / folder).glob("*.h")) for folder in FOLDERS}
    c_headers = {ROOT / "include" / "ropewalk" / name: target for name, target in C_HEADERS.items()}
    unknown = set((ROOT / "include").rglob("*.h")) - set(c_headers) - {path for of in headers.values() for path in of}
    if unknown:
        sys.exit(f"scripts/api_docs.py: add the folder of {', '.join(map(str, sorted(unknown)))} to FOLDERS")
    rows = ["| page | headers |", "|---|---|"]
    rows += [f"| [{folder}]({folder}.md) | {', '.join(path.stem for path in of)} |" for folder, of in headers.items()]
    python = list(python_api_docs.pages())
    rows += ["| [C](c.md) | the C interface |", *(f"| [{module}]({name}.md) | of Python |" for name, module, _ in python), ""]
    yield "index", INTRO + "\n".join(rows)
    yield from ((name, text) for name, _, text in python)
    for folder, of in headers.items():
        yield folder, f"# ropewalk::{folder}\n\n" + "\n".join(section(path) for path in of)
    text = "# The C interface\n"
    for path, target in c_headers.items():
        text += f"\n## ropewalk/{path.name}\n\nLink `ropewalk::{target}`.\n\n```c\n{path.read_text(encoding='utf-8')}```\n"
    yield "c", text


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    made = dict(pages())
    if sys.argv[1] != "--check":
        folder = pathlib.Path(sys.argv[1])
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in made.items():
            (folder / f"{name}.md").write_text(text, encoding="utf-8")
    print(f"{len(made)} pages, {sum(text.count(chr(10)) for text in made.values())} lines")


if __name__ == "__main__":
    main()
