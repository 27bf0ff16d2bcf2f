"""llama.cpp on what `ropewalk convert` and `ropewalk extend` write: it loads every file and gives
ropewalk's logits; and on files that they refuse to write, because llama.cpp would not load them or
would read them otherwise."""

import json
import os
import pathlib
import subprocess
import sys

import gguf
import numpy as np
import safetensors.numpy

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import llamacpp_cases as cases  # noqa: E402
import llamacpp_families  # noqa: E402
import llamacpp_t5  # noqa: E402
from short_model import short_model  # noqa: E402
from llamacpp_engine import Engine, LoadError
from llamacpp_ours import Ours, relative

FLOOR = 2e-5
# llama.cpp rounds activations to the type of the weights, so these say that a file is read at all. What
# it holds is compared by FLOOR, after the gguf package has decoded its weights to float32.
ROUNDED = {"f32": FLOOR, "f16": 5e-3, "bf16": 4e-2, "q8_0": 1e-1}
FAR = 131071 - 150
TEXT = "In the beginning God created the heaven and the earth. 1 2 34 -- it's we'll \n\n  (so)\u00e9\u4e2d"


# ---- a Hugging Face folder -------------------------------------------------------------------

NAMES = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
         "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
         "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm",
         "ffn_norm": "post_attention_layernorm"}
TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def hugging_face_name(name):
    stem, kind = name.rsplit(".", 1)
    if stem in TOP:
        return f"{TOP[stem]}.{kind}"
    _, layer, part = stem.split(".")
    return f"model.layers.{layer}.{NAMES[part]}.{kind}"


def write_folder(folder, architecture, shape, scaling):
    folder.mkdir()
    tensors = cases.weights(architecture, shape)
    safetensors.numpy.save_file({hugging_face_name(n): t for n, t in tensors.items()},
                                folder / "model.safetensors")
    config = dict(
        model_type=architecture, vocab_size=cases.VOCAB, hidden_size=shape.hidden,
        intermediate_size=cases.FEED_FORWARD, num_hidden_layers=cases.LAYERS,
        num_attention_heads=cases.HEADS, num_key_value_heads=cases.KV_HEADS, head_dim=shape.head_dim,
        rms_norm_eps=cases.EPS, rope_theta=shape.base, tie_word_embeddings=False,
        max_position_embeddings=4 * cases.ORIGINAL if scaling else cases.ORIGINAL, rope_scaling=scaling)
    if architecture == "llama":
        config |= dict(attention_bias=True, mlp_bias=True)
    (folder / "config.json").write_text(json.dumps(config))


def decoded(path, out):
    """The same file with every tensor as float32, by the gguf package's own reader and writer."""
    reader = gguf.GGUFReader(path)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(out, architecture)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kind = field.types[0]
        if kind == gguf.GGUFValueType.ARRAY:
            writer.add_array(name, field.contents())
        else:
            writer.add_key_value(name, field.contents(), kind)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        shape = [int(n) for n in reversed(tensor.shape)]
        writer.add_tensor(tensor.name, np.ascontiguousarray(values, np.float32).reshape(shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# ---- checks ----------------------------------------------------------------------------------

class Report:
    def __init__(self):
        self.count = self.failures = 0

    def row(self, name, text, good):
        self.count += 1
        self.failures += not good
        print(f"{name:44} {text}{'' if good else '  FAILED'}")


def compare(report, ours, files, ids, context=2 * cases.ORIGINAL):
    """files: [(name, file for llama.cpp, model for ropewalk, limit near, limit far or None)]."""
    numbers = [[ours.ask(model, ids, at, max(at + len(ids), context))
                for at, limit in zip((0, FAR), limits, strict=True) if limit is not None]
               for _, _, model, *limits in files]
    answers = ours.run()
    for (name, path, _, *limits), asked in zip(files, numbers, strict=True):
        try:
            with Engine(path) as engine:
                for where, at, number, limit in zip(("near", "far"), (0, FAR), asked, limits):
                    theirs = engine.logits(ids, at, context)
                    difference = relative(theirs, answers[number])
                    report.row(f"{name}, {where}", f"{difference:.1e} (limit {limit:.0e})",
                               difference <= limit)
        except LoadError as error:
            report.row(name, f"not loaded: {error}", False)


def yarn_dictionary(**more):
    return dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=cases.ORIGINAL, **more)


def settings_of(architecture, shape):
    yield "plain", None
    yield "linear", dict(rope_type="linear", factor=4.0)
    yield "yarn", yarn_dictionary()
    yield "yarn attention_factor", yarn_dictionary(attention_factor=0.8)
    if architecture == "llama":
        yield "llama3", dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                             original_max_position_embeddings=cases.ORIGINAL)
        yield "longrope", dict(
            rope_type="longrope", original_max_position_embeddings=cases.ORIGINAL,
            short_factor=[1 + 0.03 * i for i in range(shape.pairs)],
            long_factor=[1 + 0.9 * i for i in range(shape.pairs)])


def check_convert(report, build, root, ids):
    ours, files = Ours(build, root), []
    shape = cases.EXACT
    for architecture in ("llama", "qwen2", "qwen3"):
        for name, scaling in settings_of(architecture, shape):
            folder = root / f"hf {architecture} {name}"
            write_folder(folder, architecture, shape, scaling)
            for kind in ("f32", "f16", "bf16", "q8_0") if name in ("plain", "yarn") else ("f32",):
                path = root / f"{architecture} {name} {kind}.gguf"
                code, _, error = ours.program("convert", folder, "-o", path, "--type", kind, "--no-tokenizer")
                label = f"convert {architecture} {name} {kind}"
                if code != 0:
                    report.row(label, error.strip(), False)
                    continue
                # ggml's angles are exact here but for YaRN's blend and for divisors.
                far = FLOOR if name in ("plain", "linear") else 2e-2
                files.append((label, path, folder if kind == "f32" else path, ROUNDED[kind],
                              ROUNDED[kind] + far))
                if kind != "f32":
                    plain = root / f"{architecture} {name} {kind} decoded.gguf"
                    decoded(path, plain)
                    files.append((label + " decoded", plain, path, FLOOR, far))
    compare(report, ours, files, ids)


def extensions(ours, model, root):
    """(name, arguments of extend): every method by its name, then what needs a dictionary."""
    _, _, message = ours.program("extend", model, "--method", "bogus", "-o", root / "x.gguf")
    for method in message.split("expected one of ")[1].split(";")[0].split(","):
        yield method.strip(), ("--method", method.strip(), "--factor", 1 if method == "none" else 4)
    factors = {f"{side}_factor": [1 + step * i for i in range(16)]
               for side, step in (("short", 0.03), ("long", 0.9))}
    for name, dictionary in (("yarn attention_factor", yarn_dictionary(attention_factor=0.8)),
                             ("longrope", dict(rope_type="longrope", factor=4.0, **factors,
                                               original_max_position_embeddings=cases.ORIGINAL))):
        yield name, ("--rope-scaling", json.dumps(dictionary))


def check_embedded(report, build, root):
    """The embedded model at 256 tokens: with its tokenizer, in every type; then extended by every method."""
    ours, model, files = Ours(build, root), short_model(cases.ORIGINAL), []
    text = root / "text.txt"
    text.write_text(TEXT)
    code, out, error = ours.program("tokenize", model, "--text", text, "--json")
    said = json.loads(out)
    ids = said["ids"] if isinstance(said, dict) else said
    for kind in ("f32", "f16", "bf16", "q8_0"):
        path = root / f"embedded {kind}.gguf"
        code, _, error = ours.program("convert", model, "-o", path, "--type", kind)
        if code != 0:
            report.row(f"convert models {kind}", error.strip(), False)
            continue
        files.append((f"convert models {kind}", path, path, ROUNDED[kind], 1e-2 + ROUNDED[kind]))
        with Engine(path) as engine:
            theirs = engine.tokenize(TEXT)
        bos = ids[:len(ids) - len(theirs)]
        report.row(f"tokenizer, {kind}", f"{len(theirs)} ids equal, {bos} in front of ours",
                   len(theirs) > 20 and len(bos) <= 1 and ids[len(bos):] == theirs)
    base = root / "embedded f32.gguf"
    wrong = []
    for name, setting in extensions(ours, base, root):
        path = root / f"extended {name}.gguf"
        code, _, error = ours.program("extend", base, *setting, "-o", path)
        if code == 0:
            files.append((f"extend models {name}", path, path, FLOOR, 1e-2))
            wrong.append((name, path))
        else:
            print(f"{'extend models ' + name:44} refused: {error.strip().splitlines()[-1][:100]}")
    long = [i % 1000 for i in range(7, 7 + 300 * 13, 13)]
    compare(report, ours, files, long)
    check_extended_differ(report, build, root, base, wrong, long)


def check_extended_differ(report, build, root, base, extended, ids):
    """The control: were a setting ignored, the logits would be those of the file that was extended."""
    ours = Ours(build, root)
    first = ours.ask(base, ids)
    numbers = {method: ours.ask(path, ids) for method, path in extended if method != "none"}
    answers = ours.run()
    for method, number in numbers.items():
        effect = relative(answers[number], answers[first])
        report.row(f"extend models {method}, ignored", f"would be {effect:.1e}", effect > 100 * FLOOR)


def check_refusals(report, root):
    """Why `convert` and `extend` refuse: llama.cpp does not take these files."""
    shape = cases.EXACT

    def file(name, architecture="llama", keys=None, extra=None, drop=(), shape=shape):
        path = root / f"refused {name}.gguf"
        cases.write(path, architecture, shape, keys or {}, {**cases.weights(architecture, shape), **(extra or {})},
                    drop)
        return name, path

    ones = np.ones(shape.pairs, np.float32)
    narrow = cases.Shape(shape.head_dim, shape.base)
    narrow.hidden //= 2
    for name, path in (
            file("no tokenizer key", drop=(".tokenizer.ggml.model",)),
            file("rope_freqs of qwen2", "qwen2", extra={"rope_freqs.weight": ones}),
            file("rope_freqs of qwen3", "qwen3", extra={"rope_freqs.weight": ones}),
            file("half a head of llama", keys={"rope.dimension_count": shape.pairs}),
            file("half a head of qwen2", "qwen2", keys={"rope.dimension_count": shape.pairs}),
            file("half a head of qwen3", "qwen3", keys={"rope.dimension_count": shape.pairs}),
            file("qwen2's heads of 32 for 64", "qwen2", shape=narrow),
            file("bias of qwen3's o_proj", "qwen3",
                 extra={"blk.0.attn_output.bias": np.zeros(shape.hidden, np.float32)})):
        # In a process of its own, since some of these abort.
        engine = pathlib.Path(__file__).with_name("llamacpp_engine.py")
        result = subprocess.run([sys.executable, str(engine), str(path)], capture_output=True, text=True,
                                env={**os.environ, "GGML_NO_BACKTRACE": "1"})
        said = [line for line in result.stderr.splitlines() if "LoadError:" in line or "GGML_ASSERT" in line]
        report.row(f"llama.cpp refuses {name}", said[0][-100:] if said else "loaded",
                   result.returncode != 0 and bool(said))


def check_ignored(report, build, root, ids):
    """llama.cpp takes 32 and 1 for YaRN's betas, whatever these files say."""
    shape = cases.EXACT
    for architecture in cases.ALL:
        ours, paths = Ours(build, root), []
        for name, keys in (("usual", {}), ("other", {"rope.scaling.yarn_beta_fast": 8.0,
                                                     "rope.scaling.yarn_beta_slow": 0.5})):
            paths.append(root / f"betas {architecture} {name}.gguf")
            cases.write(paths[-1], architecture, shape,
                        {"rope.scaling.type": "yarn", "rope.scaling.factor": 8.0, **keys},
                        cases.weights(architecture, shape))
            ours.ask(paths[-1], ids)
        answers, theirs = ours.run(), []
        for path in paths:
            with Engine(path) as engine:
                theirs.append(engine.logits(ids))
        same = bool((theirs[0] == theirs[1]).all())
        effect = relative(answers[1], answers[0])
        report.row(f"llama.cpp ignores betas of {architecture}",
                   f"the same bits; read, they would move logits by {effect:.1e}",
                   same and effect > 100 * FLOOR)


def check(build, root):
    report = Report()
    rng = np.random.default_rng(1)
    ids = [int(i) for i in rng.integers(0, cases.VOCAB, 300)]
    check_convert(report, build, root, ids)
    families = llamacpp_families.check(report, Ours(build, root), root, ids, decoded)
    compare(report, Ours(build, root), families, ids)
    check_embedded(report, build, root)
    llamacpp_t5.check(report, build, root)
    check_refusals(report, root)
    check_ignored(report, build, root, ids)
    print(f"{report.count} checks of written files, {report.failures} failed")
    return report.failures
