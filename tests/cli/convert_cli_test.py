"""extend and convert from outside: copies, what is kept, interruption, messages."""

import json
import os
import pathlib
import resource
import shutil
import signal
import struct
import subprocess
import time

import support
from model_case import EXTEND, ModelCase, read_gguf
from support import MODEL, PROGRAM


class Copies(ModelCase):
    def inode(self, path):
        return os.stat(path).st_ino

    def test_a_rewritten_copy_leaves_the_source_alone(self):
        for name, text in (("onnx/model.onnx", "weights"), ("original/params.json", "{}"),
                           ("original/deep/note.txt", "n"), (".gitattributes", "a"),
                           (".git/config", "g"), (".cache/huggingface/x", "c")):
            (self.model / name).parent.mkdir(parents=True, exist_ok=True)
            (self.model / name).write_text(text)
        out = self.folder / "out"
        report = self.json("extend", self.model, *EXTEND, "-o", out, "--json")
        copied = {str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()}
        self.assertEqual(copied, {"config.json", "model.safetensors", "tokenizer.json",
                                  "tokenizer_config.json", "onnx/model.onnx", ".gitattributes",
                                  "original/params.json", "original/deep/note.txt"})
        notes = "\n".join(report["notes"])
        self.assertIn("7 other files copied", notes)
        self.assertIn("hidden folders left out: .cache, .git", notes)
        self.assertIn("without the new setting: onnx/model.onnx", notes)
        for name in copied:
            self.assertNotEqual(self.inode(out / name), self.inode(self.model / name), name)
            if name != "config.json":
                self.assertEqual((out / name).read_bytes(), (self.model / name).read_bytes())
        for name in ("tokenizer.json", "model.safetensors"):
            before = (self.model / name).read_bytes()
            with open(out / name, "r+b") as file:  # in place, as save_pretrained rewrites
                file.write(b"changed")
            self.assertEqual((self.model / name).read_bytes(), before)

    def test_link_shares_weights_alone(self):
        (self.model / "onnx").mkdir()
        (self.model / "onnx/model.onnx").write_text("weights")
        out = self.folder / "out"
        said = self.works("extend", self.model, *EXTEND, "--link", "-o", out).decode()
        self.assertIn("2 other files copied, 2 hard-linked", said)
        for name, shared in (("model.safetensors", True), ("onnx/model.onnx", True),
                             ("tokenizer.json", False), ("config.json", False)):
            self.assertEqual(self.inode(out / name) == self.inode(self.model / name), shared, name)
        gguf = self.folder / "m.gguf"
        self.works("convert", self.model, "-o", gguf)
        self.fails(2, "extend", gguf, *EXTEND, "--link", "-o", self.folder / "n.gguf",
                   says="--link is for folders")

    def test_a_cache_of_links_becomes_files(self):
        blobs, snapshot = self.folder / "blobs", self.folder / "snapshot"
        blobs.mkdir()
        snapshot.mkdir()
        for path in self.model.iterdir():
            shutil.copy(path, blobs / path.name)
            os.chmod(blobs / path.name, 0o444)
            (snapshot / path.name).symlink_to(pathlib.Path("..") / "blobs" / path.name)
        out = self.folder / "out"
        self.works("extend", snapshot, *EXTEND, "-o", out)
        for path in out.iterdir():
            self.assertFalse(path.is_symlink(), path)
            self.assertTrue(path.stat().st_mode & 0o200, path)
            self.assertNotEqual(self.inode(path), self.inode(blobs / path.name))

    def test_layout_copies_too(self):
        (self.model / "pytorch_model.bin").write_text("old layout")
        out = self.folder / "out"
        said = self.works("convert", self.model, "--layout", "interleaved", "-o", out).decode()
        self.assertIn("left out: pytorch_model.bin", said)
        self.assertFalse((out / "pytorch_model.bin").exists())
        self.assertNotEqual(self.inode(out / "tokenizer.json"),
                            self.inode(self.model / "tokenizer.json"))
        back = self.folder / "back"
        for text in (said, self.works("convert", out, "--layout", "half", "-o", back).decode()):
            self.assertIn("bit-identical before and after; rotated as consecutive elements", text)
        self.assertEqual(json.loads((back / "config.json").read_text()),
                         json.loads((self.model / "config.json").read_text()))

    def test_what_cannot_be_copied_is_named(self):
        out = self.folder / "out"
        (self.model / "gone.txt").symlink_to("nowhere")
        self.fails(1, "extend", self.model, *EXTEND, "-o", out, says="gone.txt: a symbolic link to nothing")
        (self.model / "gone.txt").unlink()
        (self.model / "round").symlink_to(".")
        self.fails(1, "extend", self.model, *EXTEND, "-o", out, says="round: a symbolic link to a folder")
        (self.model / "round").unlink()
        os.mkfifo(self.model / "pipe")
        self.fails(1, "extend", self.model, *EXTEND, "-o", out, says="pipe: neither a file nor a folder")
        (self.model / "pipe").unlink()
        self.assertEqual(self.names(), self.before)

    def test_a_full_disk(self):
        def small_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))
        out = self.folder / "out"
        message = self.fails(1, "extend", self.model, *EXTEND, "-o", out, preexec_fn=small_files,
                             says=f"{out}/model.safetensors: cannot copy")
        self.assertIn("File too large", message)
        self.assertNotIn(".part", message)
        self.assertEqual(self.names(), self.before)

        disk = self.folder / "disk"
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk],
                          stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("no file system can be mounted here, so none can be full")
        try:
            message = self.fails(1, "extend", self.model, *EXTEND, "-o", disk / "out",
                                 says="No space left on device")
            size = (self.model / "model.safetensors").stat().st_size / 1e6
            self.assertIn(f"the copy needs {size:.1f} MB and 1.0 MB are free", message)
            self.assertIn("--link", message)
            self.fails(1, "convert", self.model, "-o", disk / "m.gguf", says="No space left on device")
            self.assertEqual(list(disk.iterdir()), [])
        finally:
            subprocess.run(["umount", disk], check=True)

    def test_names_that_say_another_format(self):
        gguf = self.folder / "m.gguf"
        self.works("convert", self.model, "-o", gguf)
        self.before = self.names()
        self.fails(2, "extend", self.model, *EXTEND, "-o", self.folder / "n.gguf",
                   says="ropewalk convert")
        self.fails(2, "extend", gguf, *EXTEND, "-o", self.folder / "n", says="end in .gguf")
        self.fails(2, "convert", gguf, "-o", self.folder / "n.gguf", says="from a GGUF file to a folder")
        self.fails(2, "extend", self.model, *EXTEND, "-o", self.model / "inside",
                   says="choose a place outside")
        self.assertEqual(self.names(), self.before)


TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.content }}é{% endfor %}"
TOOLS = "{{ tools }}"


class Keeps(ModelCase):
    def setUp(self):
        super().setUp()
        self.edit("tokenizer_config.json", chat_template=TEMPLATE, pad_token="!",
                  unk_token={"content": '"', "lstrip": False}, mask_token="#", eot_token="$",
                  add_eos_token=True, eos_token="%")
        self.edit("special_tokens_map.json", sep_token="&", cls_token="no such token",
                  additional_special_tokens=["<|bos|>"])
        self.edit("generation_config.json", eos_token_id=[5, 7], do_sample=True, pad_token_id=1)
        self.edit("config.json", eos_token_id=5, attention_dropout=0.0, initializer_range=0.02)
        self.gguf, self.back = self.folder / "m.gguf", self.folder / "back"

    def notes(self, *arguments):
        return "\n".join(self.json(*arguments, "--json")["notes"])

    def test_there_and_back(self):
        notes = self.notes("convert", self.model, "-o", self.gguf)
        keys = read_gguf(self.gguf)
        want = {"padding": 1, "unknown": 2, "mask": 3, "eot": 4, "seperator": 6, "eos": 5, "bos": 0}
        for role, token in want.items():
            self.assertEqual(keys[f"tokenizer.ggml.{role}_token_id"], token, role)
        self.assertEqual(keys["tokenizer.chat_template"], TEMPLATE)
        self.assertTrue(keys["tokenizer.ggml.add_eos_token"])
        self.assertNotIn("tokenizer.ggml.cls_token_id", keys)
        for note in ("config.json: 'attention_dropout', 'initializer_range'",
                     "tokenizer_config.json: 'clean_up_tokenization_spaces', 'model_max_length'",
                     "special_tokens_map.json: 'additional_special_tokens', 'cls_token'",
                     "generation_config.json: 'eos_token_id', 'do_sample'"):
            self.assertIn(f"not kept, GGUF has no place for it: {note}", notes)

        notes = self.notes("convert", self.gguf, "-o", self.back)
        self.assertIn("not kept, a Hugging Face folder has no place for it: m.gguf: 'general.name'", notes)
        said = json.loads((self.back / "tokenizer_config.json").read_text())
        for key, token in (("pad", "!"), ("unk", '"'), ("mask", "#"), ("eot", "$"), ("sep", "&"),
                           ("eos", "%"), ("bos", "<|bos|>")):
            self.assertEqual(said[f"{key}_token"], token)
        self.assertEqual(said["chat_template"], TEMPLATE)
        self.assertTrue(said["add_eos_token"])
        config = json.loads((self.back / "config.json").read_text())
        self.assertEqual(config["pad_token_id"], 1)
        self.assertEqual(config["eos_token_id"], [5, 4])
        tokenizer = json.loads((self.back / "tokenizer.json").read_text())
        self.assertEqual([list(part)[0] for part in tokenizer["post_processor"]["single"]],
                         ["SpecialToken", "Sequence", "SpecialToken"])

        again = self.folder / "again.gguf"
        self.works("convert", self.back, "-o", again)
        after = read_gguf(again)
        for key in set(keys) | set(after):
            if key not in ("general.name", "tokenizer.ggml.pre"):
                self.assertEqual(after.get(key), keys.get(key), key)

    def test_a_name_that_llama_cpp_does_not_load(self):
        for name, written in (("my-Phi-3", "model"), ("phi3_lr", "model"), ("my-phi", "my-phi")):
            folder = self.folder / name
            shutil.copytree(self.model, folder)
            notes = self.notes("convert", folder, "-o", self.folder / f"{name}.gguf")
            self.assertEqual(read_gguf(self.folder / f"{name}.gguf")["general.name"], written)
            self.assertEqual(f"general.name is model and not {name}:" in notes, written == "model")

    def test_every_key_of_the_configuration_is_kept_or_listed(self):
        self.edit("config.json", pretraining_tp=1, use_cache=True, my_note="x", pad_token_id=1,
                  transformers_version="4.44.0")
        notes = self.notes("convert", self.model, "-o", self.gguf)
        self.works("convert", self.gguf, "-o", self.back)
        before = json.loads((self.model / "config.json").read_text())
        after = json.loads((self.back / "config.json").read_text())
        listed = {key for key in before if f"'{key}'" in notes}
        self.assertLessEqual({"pretraining_tp", "use_cache", "my_note", "attention_dropout"}, listed)
        for key in set(before) - listed - {"eos_token_id"}:  # which has eot_token behind it now
            self.assertEqual(after[key], before[key], key)

    def test_templates_by_name(self):
        listed = [{"name": "default", "template": TEMPLATE}, {"name": "tool_use", "template": TOOLS}]
        self.edit("tokenizer_config.json", chat_template=listed)
        self.works("convert", self.model, "-o", self.gguf)
        keys = read_gguf(self.gguf)
        self.assertEqual(keys["tokenizer.chat_template"], TEMPLATE)
        self.assertEqual(keys["tokenizer.chat_template.tool_use"], TOOLS)
        self.assertEqual(keys["tokenizer.chat_templates"], ["tool_use"])
        self.works("convert", self.gguf, "-o", self.back)
        self.assertEqual(json.loads((self.back / "tokenizer_config.json").read_text())["chat_template"],
                         listed)

    def test_template_files(self):
        (self.model / "chat_template.jinja").write_text("of a file")
        (self.model / "additional_chat_templates").mkdir()
        (self.model / "additional_chat_templates/rag.jinja").write_text("rag")
        self.works("convert", self.model, "-o", self.gguf)
        keys = read_gguf(self.gguf)
        self.assertEqual(keys["tokenizer.chat_template"], "of a file")  # as transformers has it
        self.assertEqual(keys["tokenizer.chat_template.rag"], "rag")
        (self.model / "chat_template.jinja").unlink()
        self.edit("tokenizer_config.json", chat_template=None)
        self.edit("chat_template.json", chat_template="of json")
        self.works("convert", self.model, "-o", self.folder / "json.gguf")
        self.assertEqual(read_gguf(self.folder / "json.gguf")["tokenizer.chat_template"], "of json")

    def test_weights_alone_list_the_tokens(self):
        notes = self.notes("convert", self.model, "--no-tokenizer", "-o", self.gguf)
        self.assertIn("config.json: 'bos_token_id', 'eos_token_id'", notes)


def write_large_model(folder, layers=16):
    """About 100 MB of random weights that a moment's work cannot convert."""
    hidden, forward, heads, vocab = 768, 1536, 12, 4096
    names = {"model.embed_tokens.weight": [vocab, hidden], "model.norm.weight": [hidden]}
    for layer in range(layers):
        start = f"model.layers.{layer}."
        names |= {start + "input_layernorm.weight": [hidden],
                  start + "post_attention_layernorm.weight": [hidden]}
        names |= {start + f"self_attn.{n}_proj.weight": [hidden, hidden] for n in "qkvo"}
        names |= {start + f"mlp.{n}_proj.weight": [forward, hidden] for n in ("gate", "up")}
        names[start + "mlp.down_proj.weight"] = [hidden, forward]
    header, at = {}, 0
    for name, shape in names.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    folder.mkdir()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        piece = b"".join(struct.pack("<H", 0x3c00 + (i * 7919) % 1024 + (i % 2 << 15))
                         for i in range(1 << 16))
        for _ in range(at // len(piece)):
            file.write(piece)
        file.write(piece[:at % len(piece)])
    (folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "vocab_size": vocab, "hidden_size": hidden, "intermediate_size": forward,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": heads,
        "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
        "hidden_act": "silu", "rope_theta": 10000.0}))


class Interrupted(support.CliCase):
    def interrupt(self, command, when, number):
        """Sends a signal once `when` of the folder that is written in is true."""
        before = sorted(p.name for p in self.folder.iterdir())
        out = pathlib.Path(command[command.index("-o") + 1])
        process = subprocess.Popen([PROGRAM, *map(str, command)], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        part = self.folder / f"{out.name}.{process.pid}.part"
        while process.poll() is None:
            self.assertFalse(out.exists())
            try:
                if when(part):
                    break
            except FileNotFoundError:
                pass
            time.sleep(0.0005)
        self.assertIsNone(process.poll(), "it ended before it could be interrupted")
        self.assertFalse(out.exists())
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, stderr)
        self.assertEqual(stdout, b"")
        self.assertEqual(stderr, b"ropewalk: interrupted; what was written is removed\n")
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), before)

    def test_nothing_is_left(self):
        model = self.folder / "large"
        write_large_model(model)

        def begun(part):
            return part.exists()

        def half_written(part):
            return any(p.stat().st_size > 20_000_000 for p in part.iterdir())

        gguf = ["convert", model, "--no-tokenizer", "-o", self.folder / "m.gguf"]
        self.interrupt(gguf, begun, signal.SIGINT)
        self.interrupt(gguf, half_written, signal.SIGINT)
        # It is there under its name, in the folder beside, once the check begins.
        self.interrupt(gguf, lambda part: (part / "m.gguf").exists(), signal.SIGINT)
        self.interrupt(gguf, lambda part: (part / "m.gguf").exists(), signal.SIGTERM)
        layout = ["convert", model, "--layout", "interleaved", "-o", self.folder / "out"]
        self.interrupt(layout, begun, signal.SIGINT)
        self.interrupt(layout, lambda part: (part / "out/config.json").exists(), signal.SIGINT)
        extend = ["extend", model, *EXTEND, "-o", self.folder / "out"]
        self.interrupt(extend, begun, signal.SIGTERM)
        # Twice at once, as timeout(1) sends it; and the model that is not interrupted gets its name.
        self.works(*gguf, "--no-verify")
        self.interrupt(["convert", self.folder / "m.gguf", "--no-tokenizer", "-o", self.folder / "hf"],
                       begun, signal.SIGINT)

    def test_a_proof_that_fails_leaves_nothing(self):
        before = sorted(p.name for p in self.folder.iterdir())
        for method in ("dynamic-linear", "dynamic-yarn", "qwen", "hope"):
            self.fails(1, "extend", MODEL, "--method", method, "--factor", 4, "-o", self.folder / "x",
                       says="cannot hold")
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), before)


class Messages(ModelCase):
    def short(self, message):
        """At most five lines of a terminal."""
        self.assertLessEqual(len(message), 500, message)

    def test_refusals_are_short_and_say_what_to_do(self):
        gguf = self.folder / "m.gguf"
        self.works("convert", self.model, "-o", gguf)
        for method in ("dynamic-linear", "dynamic-yarn", "qwen"):
            message = self.fails(1, "extend", self.model, "--method", method, "--factor", 4, "-o",
                                 self.folder / "x", says="depends on the length of each text")
            self.short(message)
            advice = message[message.index("--length "):].split("'")
            words = advice[0].split() + [advice[1]]
            self.works("extend", self.model, *words, "-o", self.folder / method)
            # What it was said to come to: the plan at that length, and that in the new file.
            plan = ["--length", 1024, "--text", self.text, "--anchors", 1, "--dry-run", "--json"]
            self.assertEqual(
                self.json("perplexity", self.folder / method, *plan)["plan_hash"],
                self.json("perplexity", self.model, *plan, "--method", method, "--factor", 4)["plan_hash"])
            self.short(self.fails(1, "extend", gguf, "--method", method, "--factor", 4, "-o",
                                  self.folder / "x.gguf", says="follows the length of the text"))
        message = self.fails(1, "extend", self.model, "--method", "hope", "--factor", 4, "-o",
                             self.folder / "x", says="has pairs with frequency 0")
        self.short(message)
        self.assertIn("ropewalk convert", message)

    def test_hope_in_gguf_says_what_was_written(self):
        gguf, out = self.folder / "m.gguf", self.folder / "hope.gguf"
        self.works("convert", self.model, "-o", gguf)
        said = self.works("extend", gguf, "--method", "hope", "--factor", 4, "-o", out).decode()
        data = out.read_bytes()
        written = [struct.unpack_from("<f", data, at)[0] for at in range(0, len(data) - 3, 4)]
        still = sum(1 for x in written if abs(x - 1e30) < 1e24)
        self.assertGreater(still, 0)
        self.assertIn(f"rope_freqs.weight written: a divisor for each of 16 pairs; {still} of them "
                      "are 1e30", said)
        self.assertNotIn("There is no flag for it", said)
        self.assertIn("The setting is in the written file", said)

    def warnings(self):
        found = self.json("inspect", self.model, "--json")["positions"]["warnings"]
        return {warning["id"]: warning["text"] for warning in found}

    def test_yarn_quotes_the_number_of_the_file(self):
        yarn = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 256}
        self.edit("config.json", rope_scaling=yarn, max_position_embeddings=1024)
        self.assertIn("1024 instead of 256", self.warnings()["yarn-max-positions"])
        self.edit("config.json", max_position_embeddings=256)  # Qwen's way: nothing to confuse
        self.assertNotIn("yarn-max-positions", self.warnings())
        yarn["attention_factor"] = 1.2345678901234567
        self.edit("config.json", rope_scaling=yarn)
        self.assertIn("attention_factor 1.2345678901234567", self.warnings()["yarn-attention-factor"])

    def test_a_dictionary_with_its_own_base(self):
        out = self.folder / "out"
        self.works("extend", self.model, "--rope-scaling", '{"rope_type": "default", "rope_theta": 5e4}',
                   "-o", out)
        self.assertEqual(json.loads((out / "config.json").read_text())["rope_theta"], 5e4)


if __name__ == "__main__":
    support.main()
