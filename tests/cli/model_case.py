"""A model to play with, and GGUF by its specification: what the tests of commands that write models share."""

import json
import pathlib
import shutil
import struct

import support

EXTEND = ["--method", "linear", "--factor", 2]
SOURCE_MODEL = pathlib.Path(support.MODEL)


class ModelCase(support.CliCase):
    """With a copy of the model to play with."""

    def setUp(self):
        super().setUp()
        self.model = self.folder / "source"
        self.model.mkdir()
        for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
            shutil.copy(SOURCE_MODEL / name, self.model / name)
        self.before = self.names()

    def names(self):
        return sorted(p.name for p in self.folder.iterdir())

    def edit(self, name, **keys):
        path = self.model / name
        content = json.loads(path.read_text()) if path.exists() else {}
        content.update(keys)
        path.write_text(json.dumps(content))


def parse_gguf(data):
    """Metadata, the bytes of each value, and where the list of tensors begins and ends."""
    at = 24

    def take(kind):
        nonlocal at
        value = struct.unpack_from("<" + kind, data, at)[0]
        at += struct.calcsize(kind)
        return value

    def text():
        nonlocal at
        size = take("Q")
        at += size
        return data[at - size:at].decode()

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            inner, count = take("I"), take("Q")
            return [value(inner) for _ in range(count)]
        return take("BbHhIif?"[kind] if kind < 8 else "Qqd"[kind - 10])

    assert data[:4] == b"GGUF"
    tensors, count = struct.unpack_from("<QQ", data, 8)
    keys, raw = {}, {}
    for _ in range(count):
        key, begin = text(), at
        keys[key] = value(take("I"))
        raw[key] = data[begin:at]
    first = at
    for _ in range(tensors):
        text()
        rank = take("I")
        at += 8 * rank + 4 + 8
    return keys, raw, first, at


def read_gguf(path):
    return parse_gguf(path.read_bytes())[0]


def write_gguf(path, data, raw):
    """The file `data` with other metadata: bytes of type and value by key."""
    _, _, first, end = parse_gguf(data)
    head = data[:16] + struct.pack("<Q", len(raw))
    for key, value in raw.items():
        head += struct.pack("<Q", len(key)) + key.encode() + value
    head += data[first:end]
    path.write_bytes(head + bytes(-len(head) % 32) + data[end + -end % 32:])
