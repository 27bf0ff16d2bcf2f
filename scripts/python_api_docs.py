"""The reference of the Python package in Markdown, a page for each module: what its `__all__` names, with signatures and
docstrings, read from the sources without importing them. scripts/api_docs.py puts the pages beside those of the headers."""

import ast
import functools
import pathlib
import re
import sys
import textwrap

PACKAGE = pathlib.Path(__file__).resolve().parent.parent / "python"
MODULES = ("ropewalk", "ropewalk.torch", "ropewalk.nn", "ropewalk.transformers", "ropewalk.engine", "ropewalk.vllm")
SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Yields):")
ITEM = re.compile(r"((?:\*{0,2}[a-z_]\w*(?:, )?)+): (.*)")


def path_of(module):
    path = PACKAGE.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@functools.cache
def tree(module):
    return ast.parse(path_of(module).read_text(encoding="utf-8"))


def names_of(module):
    for node in tree(module).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return ast.literal_eval(node.value)
    return sys.exit(f"scripts/python_api_docs.py: {module} has no __all__")


def find(module, name):
    """The class or function of this name, wherever the module has it from."""
    for node in ast.walk(tree(module)):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name and node in tree(module).body:
            return node
        if isinstance(node, ast.ImportFrom):
            package = module if path_of(module).name == "__init__.py" else module.rpartition(".")[0]
            for _ in range(node.level - 1):
                package = package.rpartition(".")[0]
            source = node.module if not node.level else f"{package}.{node.module}" if node.module else package
            for alias in node.names:
                if (alias.asname or alias.name) == name and source.startswith("ropewalk") and path_of(source).exists():
                    return find(source, alias.name)
    return None


def escaped(line):
    """Outside of code, Markdown would take these for tags and emphasis."""
    return re.sub(r"(`[^`]*`)|([<*])", lambda m: m[1] or "\\" + m[2], line)


def prose(text):
    """A docstring as Markdown: sections and `name: text` become lists, what else is indented stays code."""
    out, section, item, blank = [], False, False, False
    for line in text.splitlines():
        indent, new = len(line) - len(line.lstrip()), ITEM.fullmatch(line.strip())
        if SECTION.fullmatch(line):
            out += ["", f"**{line[:-1]}**", ""]
            section, item = True, False
        elif not line.strip():
            out.append("")
        elif new and (indent == 4 if section else indent == 0 and (blank or item)):
            out += [] if item else [""]
            out.append(f"- `{new[1]}`: {escaped(new[2])}")
            item = True
        elif item and indent:
            out.append("  " + escaped(line.strip()))
        elif section and indent:
            out.append(escaped(line.strip()))
        else:
            section, item = section and indent > 0, False
            out.append(line if indent >= 4 else escaped(line))
        blank = not line.strip()
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip("\n")


def signature(node, name, skip_self):
    arguments = ast.unparse(node.args)
    if skip_self:
        arguments = re.sub(r"^(self|cls)(, )?", "", arguments)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns and node.name != "__init__" else ""
    return textwrap.fill(f"{name}({arguments}){returns}", 110, subsequent_indent="    ", break_long_words=False)


def documented(node):
    """The heading, signature and docstrings of a class or function."""
    doc = ast.get_docstring(node)
    if isinstance(node, ast.FunctionDef):
        return ["```python", signature(node, node.name, False), "```", "", prose(doc)]
    methods = [m for m in node.body if isinstance(m, ast.FunctionDef)]
    init = next((m for m in methods if m.name == "__init__"), None)
    bases = f"({', '.join(map(ast.unparse, node.bases))})" if node.bases else ""
    code = [f"class {node.name}{bases}"]
    code += [signature(init, node.name, True)] if init and "_core." not in ast.unparse(init.args) else []
    fields = [field for field in node.body if isinstance(field, ast.AnnAssign) and not field.target.id.startswith("_")]
    code += ["    " + ast.unparse(field) for field in fields]
    out = ["```python", *code, "```", "", prose(doc)]
    for method in methods:
        of = ast.get_docstring(method)
        if method.name.startswith("_") or not of:
            continue
        kinds = [ast.unparse(d) for d in method.decorator_list]
        if "property" in kinds:
            shown = method.name + (f": {ast.unparse(method.returns)}" if method.returns else "")
        else:
            shown = signature(method, method.name, "staticmethod" not in kinds)
        out += ["", "`" + " ".join(f"{node.name}.{shown}".split()) + "`", "", prose(of)]
    return out


def compiled(name):
    """The same of what C++ makes: what stands beside the name in python/src."""
    doc = r'((?:"(?:[^"\\]|\\.)*"\s*)+)'
    pattern = rf'(?:m, "|m\.def\("|"ropewalk\.){name}",(?:\s*[&:\w]+(?:\("\w+"\))?,)*\s*{doc}'
    for path in sorted((PACKAGE / "src").glob("register_*.cc")):
        found = re.search(pattern, path.read_text(encoding="utf-8"))
        if found:
            shown = {"Error": "class Error(RuntimeError)", "set_num_threads": "set_num_threads(threads: int) -> None"}
            code = shown.get(name, f"{name}() -> int" if name.islower() else f"class {name}")
            return ["```python", code, "```", "", prose(ast.literal_eval(f"({found[1]})"))]
    return None


def pages():
    """(name of the page, module, its Markdown); fails where a public name has no docstring."""
    for module in MODULES:
        out = [f"# {module}", "", prose(ast.get_docstring(tree(module)) or "")]
        for name in names_of(module):
            node = find(module, name)
            shown = compiled(name) if node is None else ast.get_docstring(node) and documented(node)
            if not shown:
                sys.exit(f"scripts/python_api_docs.py: {module}.{name} has no docstring")
            out += ["", f"## {name}", "", *shown]
        yield module.replace(".", "-") + "-python", module, "\n".join(out) + "\n"
