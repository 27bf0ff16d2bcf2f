"""What a model file says and nobody follows: every command says it on stderr, or refuses."""

import json
import pathlib
import struct

import support
from support import MODEL, run

COMMANDS = {
    "inspect": [], "generate": ["--prompt", "And", "--max-tokens", 2],
    "tokenize": ["--text", "TEXT"], "perplexity": ["--text", "TEXT", "--length", 32, "--anchors", 2],
    "passkey": ["--length", 128, "--passkey-trials", 1],
    "sweep": ["--text", "TEXT", "--lengths", 32, "--methods", "none", "--anchors", 1, "--tasks", "perplexity",
              "-o", "OUT"],
    "extend": ["--method", "yarn", "--factor", 2, "-o", "OUT"],
    "convert": ["-o", "OUT.gguf"],
}


class Config(support.CliCase):
    def model(self, **keys):
        """The model of the project with more in its config.json."""
        folder = self.folder / "model"
        folder.mkdir(exist_ok=True)
        for file in pathlib.Path(MODEL).resolve().iterdir():
            if file.suffix in (".json", ".safetensors") and not (folder / file.name).exists():
                (folder / file.name).symlink_to(file)
        config = json.loads((pathlib.Path(MODEL) / "config.json").read_text())
        (folder / "config.json").unlink()
        (folder / "config.json").write_text(json.dumps({**config, **keys}))
        return folder

    def command(self, name, model, *more):
        out = self.folder / f"out-{name}-{len(list(self.folder.iterdir()))}"
        rest = [str(a).replace("TEXT", str(self.text)).replace("OUT", str(out)) for a in COMMANDS[name]]
        return run(name, model, *rest, *more)

    def warnings(self, result):
        return [line for line in result.stderr.decode().splitlines() if "ropewalk: warning: " in line]

    def test_keys_that_the_family_ignores_are_said_by_every_command(self):
        plain = self.json("perplexity", MODEL, "--text", self.text, "--length", 32, "--anchors", 2,
                          "--json")
        model = self.model(no_rope_layers=[1, 0, 1, 0], sliding_window=8,
                           layer_types=["sliding_attention", "full_attention"] * 2)
        for name in COMMANDS:
            with self.subTest(name):
                result = self.command(name, model)
                self.assertEqual(result.returncode, 0, result.stderr.decode())
                lines = self.warnings(result)
                self.assertEqual(len(lines), 3, result.stderr.decode())
                for line, key in zip(lines, ("layer_types", "sliding_window", "no_rope_layers")):
                    self.assertIn(f"config.json: {key} = ", line)
                    self.assertIn("transformers does not read it in a llama model; ignored", line)
        again = self.json("perplexity", model, "--text", self.text, "--length", 32, "--anchors", 2,
                          "--json")
        self.assertEqual(again["perplexity"], plain["perplexity"])

    def test_inspect_tells_the_truth_about_them(self):
        plain = self.works("inspect", MODEL).decode()
        self.assertIn("Hugging Face   computes what the file specifies", plain)
        model = self.model(no_rope_layers=[1, 0, 1, 0])
        shown = self.works("inspect", model).decode()
        self.assertNotIn("computes what the file specifies", shown)
        self.assertIn("computes the above, without the keys under Unusual", shown)
        self.assertIn("no_rope_layers = an array of 4: transformers does not read it", shown)
        page = self.json("inspect", model, "--json")
        self.assertEqual(len(page["not_honoured"]), 1)
        self.assertEqual(page["positions"]["hash"],
                         self.json("inspect", MODEL, "--json")["positions"]["hash"])
        self.assertEqual(len(self.warnings(run("inspect", "--diff", model, MODEL))), 1)

    def test_inspect_says_nothing_of_engines_that_do_not_read_the_family(self):
        sizes = {"vocab_size": 64, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                 "intermediate_size": 96, "max_position_embeddings": 256}
        rotation = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256, "xpos": {}}
        file = self.folder / "config.json"
        file.write_text(json.dumps({"model_type": "ropewalk", "positions": {"rotation": rotation}, **sizes}))
        shown = self.works("inspect", file, "--length", 1024).decode()
        self.assertIn("other engines do not", shown)
        for words in ("What engines compute", "vLLM", "every engine", "xpos-centre"):
            self.assertNotIn(words, shown)
        page = self.json("inspect", file, "--length", 1024, "--json")["positions"]
        self.assertEqual([r["engines"] for r in page["rotations"]], [[]])

    def test_keys_at_which_transformers_stops_are_errors(self):
        model = self.model(partial_rotary_factor=0.5)
        for name in COMMANDS:
            result = self.command(name, model)
            self.assertEqual(result.returncode, 1, name)
            self.assertIn("partial_rotary_factor = 0.5: transformers stops", result.stderr.decode())
            allowed = self.command(name, model, "--allow-unknown")
            self.assertEqual(allowed.returncode, 0, allowed.stderr.decode())
            self.assertEqual(len(self.warnings(allowed)), 1, name)

    def test_keys_that_change_numbers(self):
        model = self.model(attn_logit_softcapping=50.0, embedding_multiplier=12.0, logit_scale=1.0)
        says = ("config.json: attn_logit_softcapping = 50.0, embedding_multiplier = 12.0: this changes "
                "the model's numbers and is not computed here; remove it, or allow unknown keys "
                "(--allow-unknown) to run the model without it")
        for name in COMMANDS:
            with self.subTest(name):
                result = self.command(name, model)
                reads_only = name in ("inspect", "tokenize", "extend")
                self.assertEqual(result.returncode, 0 if reads_only else 1, result.stderr.decode())
                if not reads_only:
                    self.assertIn(says, result.stderr.decode())
                allowed = self.command(name, model, "--allow-unknown")
                self.assertEqual(allowed.returncode, 0, allowed.stderr.decode())
                lines = self.warnings(allowed)
                self.assertEqual(len(lines), 2, name)
                self.assertIn("attn_logit_softcapping = 50.0: the decoder does not compute it; ignored",
                              lines[0])
        self.assertIn(says, self.works("inspect", model).decode())
        # Values that change nothing.
        self.works("generate", self.model(attn_logit_softcapping=None, embedding_multiplier=1.0,
                                          attention_multiplier=32 ** -0.5, is_causal=True),
                   "--prompt", "And", "--max-tokens", 2)

    def test_gguf(self):
        gguf = self.folder / "model.gguf"
        self.works("convert", MODEL, "-o", gguf)
        for key, kind, value, says in ((b"llama.logit_scale", 6, struct.pack("<f", 0.5), "= 0.5"),
                                       (b"llama.attention.causal", 7, b"\0", "= false")):
            patched = self.folder / "patched.gguf"
            patched.write_bytes(with_key(gguf.read_bytes(), key, kind, value))
            says = f"patched.gguf: {key.decode()} {says}: "
            self.fails(1, "generate", patched, "--prompt", "And", says=says)
            allowed = run("generate", patched, "--prompt", "And", "--max-tokens", 2, "--allow-unknown")
            self.assertEqual(allowed.returncode, 0, allowed.stderr.decode())
            self.assertIn(says, self.warnings(allowed)[0])
            self.assertIn(says, self.works("inspect", patched).decode())
        # A family of which the positions alone are read.
        other = self.folder / "other.gguf"
        other.write_bytes(gguf_of({b"general.architecture": b"exaone", b"exaone.block_count": 2,
                                   b"exaone.context_length": 64, b"exaone.embedding_length": 32,
                                   b"exaone.attention.head_count": 4}))
        for name in ("generate", "perplexity", "passkey", "sweep"):
            result = self.command(name, other)
            self.assertEqual(result.returncode, 1)
            said = result.stderr.decode()
            self.assertIn("GGUF files that run are those of llama, qwen2, qwen3, smollm3, gemma, ", said)
            self.assertIn("; nor does the decoder run it as a Hugging Face folder", said)


def with_key(data, key, kind, value):
    """A GGUF file with one more key; the alignment of its data is kept by a key of padding."""
    tensors, keys = struct.unpack_from("<QQ", data, 8)
    entry = struct.pack("<Q", len(key)) + key + struct.pack("<I", kind) + value
    name = b"general.pad"
    pad = -(len(entry) + 8 + len(name) + 12) % 32
    entry += struct.pack("<Q", len(name)) + name + struct.pack("<IQ", 8, pad) + b" " * pad
    return data[:8] + struct.pack("<QQ", tensors, keys + 2) + entry + data[24:]


def gguf_of(metadata):
    out = b"GGUF" + struct.pack("<IQQ", 3, 0, len(metadata))
    for key, value in metadata.items():
        out += struct.pack("<Q", len(key)) + key
        out += (struct.pack("<IQ", 8, len(value)) + value if isinstance(value, bytes)
                else struct.pack("<II", 4, value))
    return out + b"\0" * (-len(out) % 32)


if __name__ == "__main__":
    support.main()
