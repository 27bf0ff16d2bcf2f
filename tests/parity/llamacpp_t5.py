"""Logits of encoder-decoders in GGUF (tests/golden/hf_encoder_decoders) against llama.cpp's: the encoder reads a prefix,
the decoder its start token and the tokens, at once and one by one.

Differences by design: llama.cpp does not multiply the logits of a tied head by d_model^-0.5, as transformers and
ropewalk do, so that ours are divided by it here; its GELU comes from a table of float16 (rounded likewise,
transformers comes four times as close to it)."""

import json
import pathlib
import subprocess

import gguf
import numpy as np
from llamacpp_engine import Engine
from llamacpp_ours import relative

GOLDENS = pathlib.Path(__file__).resolve().parents[1] / "golden" / "hf_encoder_decoders"
START, EOS = 0, 1
LIMITS = {"t5_lm": 2e-5, "mt5_lm": 5e-3, "umt5_lm": 5e-3}  # of the largest logit
PREFIX, TOKENS = 140, 150  # beyond 128, the last distance of the buckets


def written(path, out, config):
    """As llama.cpp takes it: with a tokenizer, and no more decoder layers than encoder layers."""
    layers = config["num_layers"]
    behind = tuple(f"dec.blk.{layer}." for layer in range(layers, config["num_decoder_layers"]))
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(out, "t5")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        few = name == "t5.decoder_block_count"
        writer.add_key_value(name, layers if few else field.contents(), field.types[0])
    writer.add_tokenizer_model("none")
    writer.add_vocab_size(config["vocab_size"])
    for tensor in reader.tensors:
        if tensor.name.startswith(behind):
            continue
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        shape = [int(n) for n in reversed(tensor.shape)]
        writer.add_tensor(tensor.name, np.ascontiguousarray(values, np.float32).reshape(shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def check(report, build, root):
    rng = np.random.default_rng(3)
    jobs, files = [], {}
    for name in LIMITS:
        config = json.loads((GOLDENS / name / "config.json").read_text())
        path = root / f"{name}.gguf"
        written(GOLDENS / name / "model.gguf", path, config)
        prefix, ids = ([int(i) for i in rng.integers(2, config["vocab_size"], n)] for n in (PREFIX, TOKENS))
        out = root / f"{name}.f32"
        jobs.append(dict(model=str(path), ids=ids, types=None, alpha=0.0, vector=False, decoder=False, logits=False,
                         prefix=prefix, out=str(out)))
        files[name] = path, prefix, ids, out, config
    (root / "t5.json").write_text(json.dumps(jobs))
    subprocess.run([pathlib.Path(build) / "tests/model/encoder_dump", root / "t5.json"], check=True)
    for name, (path, prefix, ids, out, config) in files.items():
        ours = np.fromfile(out, np.float32).reshape(len(ids), -1)
        if config["tie_word_embeddings"]:
            ours = ours * config["d_model"] ** 0.5
        with Engine(path) as engine:
            for run, chunk in (("at once", None), ("one by one", 1)):
                theirs = engine.answers(prefix + [EOS], [START, *ids[:-1]], chunk)
                difference = relative(theirs, ours)
                report.row(f"{name}, {run}", f"{difference:.1e} (limit {LIMITS[name]:.0e})", difference <= LIMITS[name])
            # The control: the prefix counts.
            other = engine.answers([EOS], [START, *ids[:-1]], None)
            effect = relative(other, ours)
            report.row(f"{name}, without its prefix", f"would be {effect:.1e}", effect > 50 * LIMITS[name])
