"""Writes tests/golden/io/: files from the formats' own Python writers, with what they must decode to.

    python3 -m venv venv && venv/bin/pip install gguf==0.19.0 safetensors==0.5.3 numpy \\
        transformers==4.57.6 torch==2.13.0
    venv/bin/python tests/golden/io/make_goldens.py

quants.gguf      one tensor `<TYPE>` for each readable type, [4, 256], its bytes random (so every bit of a
                 block matters) and its half-precision scales finite, subnormal and negative ones among
                 them; beside it `<TYPE>.f32`, what gguf-py decodes it to; and one metadata key of each type.
                 Types with a grid have `<TYPE>.every` too, with every point of it, and `<TYPE>.every.f16`.
tiny.safetensors each readable dtype, a scalar, an empty tensor, metadata.
mxfp4.safetensors experts as published gpt-oss folders have them, `experts_blocks` and `experts_scales`, bytes random
                 and each scale there once; `decoded`, what transformers makes of them, not transposed.
"""
import pathlib

import gguf
import numpy as np
import safetensors
import torch
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

HERE = pathlib.Path(__file__).parent
ROWS, COLS = 4, 256
# Byte offsets of the half-precision numbers inside a block.
HALVES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
# As above; their random bytes are drawn last, so that the others stay what they were.
MORE_HALVES = {"IQ4_NL": [0], "Q2_K": [80, 82], "Q3_K": [108], "IQ4_XS": [0]}
LAST_HALVES = {"IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0], "IQ1_S": [0], "IQ1_M": [],
               "TQ1_0": [52], "TQ2_0": [64], "MXFP4": []}


def set_scattered_half(block, half):
    """IQ1_M has a quarter of its scale in the upper 4 bits of each of its last four 16-bit numbers."""
    words = block[48:].view(np.uint16)
    for i in range(4):
        words[i] = words[i] & 0xfff | (int(half.view(np.uint16)) >> 4 * i & 15) << 12


def blocks(name, rng):
    elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    data = rng.integers(0, 256, (ROWS * COLS // elements, size), dtype=np.uint8)
    for i, block in enumerate(data):
        for at in {**HALVES, **MORE_HALVES, **LAST_HALVES}[name]:
            half = np.float16(rng.normal() * 10.0 ** rng.integers(-4, 3))
            if i == 1:
                half = np.float16(3 * 2.0 ** -24)  # subnormal
            block[at:at + 2] = np.frombuffer(half.tobytes(), np.uint8)
        if name == "IQ1_M":
            set_scattered_half(block, np.float16(3 * 2.0 ** -24 if i == 1 else rng.normal()))
        if name == "MXFP4" and i < 5:
            block[0] = [0, 1, 2, 254, 255][i]  # subnormal powers of two, and those that overflow
    return data.reshape(ROWS, -1)


def every_point(name, rng):
    """Blocks of scale 1 whose points are numbered 0, 1, 2, ...; signs and scales of groups are random."""
    elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    points, width = getattr(gguf.quants, name).grid_shape
    rows = points * width // elements
    data = rng.integers(0, 256, (rows, size), dtype=np.uint8)
    data[:, :2] = np.frombuffer(np.float16(1).tobytes(), np.uint8)
    number = np.arange(points).reshape(rows, -1)
    count = number.shape[1]  # points of a block
    if name == "IQ2_XXS":
        data[:, 2:66].reshape(rows, 8, 8)[..., :4] = number.reshape(rows, 8, 4)
    elif name == "IQ2_XS":
        words = data[:, 2:66].copy().view(np.uint16) & 0xfe00 | number
        data[:, 2:66] = words.astype(np.uint16).view(np.uint8)
    else:
        data[:, 2:2 + count] = number & 255
    high = number.reshape(rows, 8, -1) >> 8  # for 32 elements each
    if name == "IQ2_S":
        data[:, 66:74] = (high << [0, 2, 4, 6]).sum(-1)
    elif name == "IQ3_S":
        data[:, 66:74] = (high << np.arange(8)).sum(-1)
    elif name == "IQ1_S":
        words = data[:, 34:50].copy().view(np.uint16) & 0xf000 | (high << [0, 3, 6, 9]).sum(-1)
        data[:, 34:50] = words.astype(np.uint16).view(np.uint8)
    return data


def write_gguf():
    rng = np.random.default_rng(3)
    writer = gguf.GGUFWriter(str(HERE / "quants.gguf"), "llama")
    writer.add_uint8("a.u8", 200)
    writer.add_int8("a.i8", -100)
    writer.add_uint16("a.u16", 60000)
    writer.add_int16("a.i16", -30000)
    writer.add_uint32("a.u32", 4000000000)
    writer.add_int32("a.i32", -2000000000)
    writer.add_uint64("a.u64", 2 ** 64 - 1)
    writer.add_int64("a.i64", -2 ** 63)
    writer.add_float32("a.f32", 0.1)
    writer.add_float64("a.f64", 0.1)
    writer.add_bool("a.bool", True)
    writer.add_string("a.string", "rope \u00e9 \u7e69")
    writer.add_array("a.ints", [1, -2, 3])
    writer.add_array("a.floats", [0.5, -0.25])
    writer.add_array("a.bools", [True, False])
    writer.add_array("a.strings", ["x", "", "\u7e69"])
    def add_quants(names):
        for name in names:
            kind = gguf.GGMLQuantizationType[name]
            raw = blocks(name, rng)
            writer.add_tensor(name, raw, raw_dtype=kind)
            writer.add_tensor(name + ".f32", gguf.quants.dequantize(raw, kind).astype(np.float32))

    add_quants(HALVES)
    x = (rng.normal(size=(ROWS, COLS)) * 10.0 ** rng.integers(-6, 4, (ROWS, COLS))).astype(np.float64)
    writer.add_tensor("F64", x)
    writer.add_tensor("F64.f32", x.astype(np.float32))
    half = x.astype(np.float16)
    writer.add_tensor("F16", half)
    writer.add_tensor("F16.f32", half.astype(np.float32))
    brain = (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    writer.add_tensor("BF16", brain.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.add_tensor("BF16.f32", (brain.astype(np.uint32) << 16).view(np.float32))
    writer.add_tensor("F32", x.astype(np.float32))
    writer.add_tensor("rank4", np.arange(24, dtype=np.float32).reshape(2, 3, 2, 2))
    add_quants(MORE_HALVES)
    add_quants(LAST_HALVES)
    for name in ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S"):
        kind = gguf.GGMLQuantizationType[name]
        raw = every_point(name, rng)
        decoded = gguf.quants.dequantize(raw, kind)
        grid = getattr(gguf.quants, name).grid.reshape(-1, getattr(gguf.quants, name).grid_shape[1])
        if name != "IQ1_S":  # every point is there, in order
            first = np.abs(decoded).reshape(grid.shape)
            assert np.all(first[:, :1] * grid == first * grid[:, :1])
        assert np.array_equal(decoded.astype(np.float16).astype(np.float32), decoded)
        writer.add_tensor(name + ".every", raw, raw_dtype=kind)
        writer.add_tensor(name + ".every.f16", decoded.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_safetensors():
    values = np.array([[1, -2.5, 3], [0.375, 1e-3, 65504]], np.float64)
    bf16 = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    tensors = {
        "f64": ("float64", [2, 3], values),
        "f32": ("float32", [2, 3], values.astype(np.float32)),
        "f16": ("float16", [2, 3], values.astype(np.float16)),
        "bf16": ("bfloat16", [2, 3], bf16),
        "scalar": ("float32", [], np.float32(7)),
        "empty": ("float32", [0, 3], np.zeros((0, 3), np.float32)),
    }
    data = {k: {"dtype": t, "shape": s, "data": v.tobytes()} for k, (t, s, v) in tensors.items()}
    (HERE / "tiny.safetensors").write_bytes(safetensors.serialize(data, {"format": "pt"}))


def write_mxfp4():
    experts, rows, groups = 2, 8, 16
    rng = np.random.default_rng(17)
    blocks = rng.integers(0, 256, (experts, rows, groups, 16), dtype=np.uint8)
    scales = rng.permutation(256).astype(np.uint8).reshape(experts, rows, groups)
    decoded = convert_moe_packed_tensors(torch.from_numpy(blocks), torch.from_numpy(scales)).transpose(1, 2)
    # The formula once more, in double: which halves of the bytes, what E2M1 and E8M0 say.
    halves = np.stack([blocks & 15, blocks >> 4], -1).reshape(experts, rows, groups, 32)
    magnitude = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])[halves & 7]
    values = np.where(halves & 8, -magnitude, magnitude) * 2.0 ** (scales[..., None].astype(int) - 127)
    with np.errstate(over="ignore"):
        values = values.astype(np.float32).reshape(experts, rows, -1)
    bits = values.view(np.uint32)
    assert np.array_equal(bits, decoded.float().numpy().view(np.uint32)) and not np.any(bits & 0xffff)
    tensors = {"experts_blocks": ("uint8", blocks), "experts_scales": ("uint8", scales),
               "decoded": ("bfloat16", (bits >> 16).astype(np.uint16))}
    data = {k: {"dtype": t, "shape": list(v.shape), "data": v.tobytes()} for k, (t, v) in tensors.items()}
    (HERE / "mxfp4.safetensors").write_bytes(safetensors.serialize(data, None))


write_gguf()
write_safetensors()
write_mxfp4()
