"""Files of strangers: whatever is wrong with them, an error of ours says so, with file and key."""

import json
import os
import pathlib
import shutil
import struct

import support
from model_case import EXTEND, ModelCase, parse_gguf, write_gguf
from support import run

WRONG = [None, "x", "", [], {}, -1, 0, 1e99, 10**30, True, [1], ["x"], {"a": 1}, [[1]]]


class Hostile(ModelCase):
    def check(self, *arguments, quiet=False):
        result = run(*arguments)
        message = result.stderr.decode(errors="replace")
        self.assertIn(result.returncode, (0, 1, 2), (arguments, message))
        for raw in ("json.exception", "filesystem error", "std::", "basic_string", "vector::",
                    "an unexpected error", "bad_", "stoi", "stol", "map::at"):
            self.assertNotIn(raw, message, arguments)
        if result.returncode != 0 and not quiet:
            self.assertEqual(len(message.splitlines()), 1, message)
            self.assertRegex(message, "[a-z_]", arguments)
        return result.returncode, message

    def commands(self):
        out = self.folder / "x"
        return [("inspect", self.model, "--json"), ("extend", self.model, *EXTEND, "-o", out),
                ("convert", self.model, "--no-verify", "-o", self.folder / "x.gguf"),
                ("convert", self.model, "--no-verify", "--layout", "interleaved", "-o", out)]

    def all_commands(self, names):
        refused = 0
        for command in self.commands():
            code, message = self.check(*command)
            if code != 0:
                refused += 1
                self.assertTrue(any(name in message for name in names), message)
            for path in (self.folder / "x", self.folder / "x.gguf"):
                shutil.rmtree(path, ignore_errors=True)
                path.unlink(missing_ok=True)
        self.assertEqual(self.names(), self.before)
        return refused

    def test_values_of_config_json(self):
        original = json.loads((self.model / "config.json").read_text())
        refused = 0
        for key in [*original, "rope_scaling", "rope_interleaved", "rope_parameters", "layer_types"]:
            for number, value in enumerate(WRONG):
                (self.model / "config.json").write_text(json.dumps({**original, key: value}))
                code, message = self.check(*self.commands()[(number + len(key)) % 4])
                refused += code != 0
                for path in (self.folder / "x", self.folder / "x.gguf"):
                    shutil.rmtree(path, ignore_errors=True)
                    path.unlink(missing_ok=True)
        self.assertGreater(refused, 100)

    def test_tokenizer_files(self):
        for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                     "generation_config.json", "chat_template.json"):
            path = self.model / name
            original = json.loads(path.read_text()) if path.exists() else {"eos_token_id": 1}
            keys = {**original, "bos_token": 0, "pad_token": 0, "chat_template": 0, "pad_token_id": 0}
            for key in keys:
                for value in (["x"], {"a": 1}, 7, [{"name": "a", "template": 2}]):
                    path.write_text(json.dumps({**original, key: value}))
                    code, _ = self.check(*self.commands()[2])
                    (self.folder / "x.gguf").unlink(missing_ok=True)
            path.write_text(json.dumps(original))
        deep = json.loads((self.model / "tokenizer.json").read_text())
        for part in ("model", "decoder", "post_processor", "pre_tokenizer"):
            for key in deep[part]:
                for value in (None, 7, {"a": 7}, [[1, 2]]):
                    broken = {**deep, part: {**deep[part], key: value}}
                    (self.model / "tokenizer.json").write_text(json.dumps(broken))
                    self.check(*self.commands()[2])
                    (self.folder / "x.gguf").unlink(missing_ok=True)

    def test_files_that_are_something_else(self):
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"):
            path, aside = self.model / name, self.folder / "aside"
            path.rename(aside)
            self.before = self.names()
            for make in (path.mkdir, lambda: path.symlink_to("nowhere"), lambda: path.symlink_to(path),
                         lambda: os.mkfifo(path), lambda: path.write_bytes(b""),
                         lambda: path.write_bytes(b"\xff\xfe{}"), lambda: path.write_text("[]"),
                         lambda: path.write_text("{"), lambda: path.write_text("7")):
                make()
                refused = self.all_commands([name, "safetensors", "expected", "tokenizer"])
                self.assertGreater(refused, 0, name)
                path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
            aside.rename(path)
            self.before = self.names()

    def test_index_of_shards(self):
        (self.model / "model.safetensors").rename(self.model / "a.safetensors")
        for index in ("7", "{}", '{"weight_map": 7}', '{"weight_map": {"x": 7}}',
                      '{"weight_map": {"x": "b.safetensors"}}', '{"weight_map": {"x": "../a"}}',
                      '{"weight_map": {"x": "a.safetensors"}}', "{", '{"weight_map": {}}'):
            (self.model / "model.safetensors.index.json").write_text(index)
            self.assertEqual(self.all_commands(["index.json", "b.safetensors"]), 4)

    def test_names_that_are_not_utf8(self):
        odd = os.fsdecode(b"od\xff\xfed")
        shutil.copytree(self.model, self.folder / odd)
        self.before = self.names()
        self.model = self.folder / odd
        for command in self.commands():
            self.assertEqual(self.check(*command)[0], 0)
            for path in (self.folder / "x", self.folder / "x.gguf"):
                shutil.rmtree(path, ignore_errors=True)
                path.unlink(missing_ok=True)
        out = self.folder / (odd + ".gguf")
        self.assertEqual(self.check("convert", self.model, "-o", out, "--json")[0], 0)
        self.assertEqual(self.check("inspect", out, "--json")[0], 0)
        self.check("inspect", self.folder / "no" / odd)
        self.check("inspect", self.folder / ("n" * 300), quiet=True)

    def test_values_of_gguf(self):
        self.works("convert", self.model, "-o", self.folder / "m.gguf")
        data = (self.folder / "m.gguf").read_bytes()
        raw = parse_gguf(data)[1]
        raw["tokenizer.chat_template"] = struct.pack("<IQ", 8, 1) + b"x"
        raw["tokenizer.ggml.padding_token_id"] = struct.pack("<II", 4, 1)
        wrong = [struct.pack("<IQ", 8, 1) + b"\xff", struct.pack("<If", 6, float("nan")),
                 struct.pack("<Iq", 11, -1), struct.pack("<IIQ", 9, 8, 0), struct.pack("<I?", 7, True),
                 struct.pack("<IIQI", 9, 4, 1, 7), struct.pack("<IQ", 10, 2**64 - 1)]
        bad, out = self.folder / "bad.gguf", self.folder / "x"
        refused = 0
        for key in raw:
            for number, value in enumerate([None, *wrong]):
                edited = {k: v for k, v in raw.items() if k != key}
                if value is not None:
                    edited[key] = value
                write_gguf(bad, data, edited)
                command = [("inspect", bad, "--json"),
                           ("extend", bad, *EXTEND, "-o", self.folder / "x.gguf"),
                           ("convert", bad, "--no-verify", "-o", out)][(number + len(key)) % 3]
                code, message = self.check(*command)
                if code != 0:
                    refused += 1
                    self.assertIn("bad.gguf", message, (key, value))
                shutil.rmtree(out, ignore_errors=True)
                (self.folder / "x.gguf").unlink(missing_ok=True)
        self.assertGreater(refused, 50)


if __name__ == "__main__":
    support.main()
