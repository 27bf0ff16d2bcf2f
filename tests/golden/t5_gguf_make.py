"""Writes the models of hf_encoder_decoders/ as GGUF, with the names of tensors and keys that gguf-py has.

    python3 tests/golden/t5_gguf_make.py      (gguf 0.19.0, safetensors, torch, sentencepiece, protobuf)

    hf_encoder_decoders/NAME/model.gguf      the same numbers, with every key that llama.cpp's converter writes for T5
    hf_encoder_decoders/t5_lm/encoder.gguf   the encoder alone ("t5encoder")
    tokenizer/spm_unigram/tokenizer.gguf     the tokenizer of that folder as "t5", without tensors

t5_lm_gated has 40 as its last distance, which GGUF cannot say, and is left out.
"""

import json
import os
import pathlib

import gguf
import torch
from safetensors.torch import load_file

os.environ["PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"] = "python"
from sentencepiece import sentencepiece_model_pb2  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent


def keys(writer, config, decodes):
    writer.add_context_length(config.get("n_positions", 512))
    writer.add_embedding_length(config["d_model"])
    writer.add_feed_forward_length(config["d_ff"])
    writer.add_block_count(config["num_layers"])
    if decodes:
        writer.add_decoder_block_count(config["num_decoder_layers"])
    writer.add_head_count(config["num_heads"])
    writer.add_key_length(config["d_kv"])
    writer.add_value_length(config["d_kv"])
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    writer.add_relative_attn_buckets_count(config["relative_attention_num_buckets"])
    writer.add_layer_norm_rms_eps(config["layer_norm_epsilon"])
    if decodes:
        writer.add_decoder_start_token_id(config["decoder_start_token_id"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_eos_token_id(config["eos_token_id"])


def model(name, decodes):
    folder = HERE / "hf_encoder_decoders" / name
    config = json.loads((folder / "config.json").read_text())
    arch = gguf.MODEL_ARCH.T5 if decodes else gguf.MODEL_ARCH.T5ENCODER
    writer = gguf.GGUFWriter(folder / ("model.gguf" if decodes else "encoder.gguf"), gguf.MODEL_ARCH_NAMES[arch])
    keys(writer, config, decodes)
    layers = max(config["num_layers"], config["num_decoder_layers"])
    names = gguf.get_tensor_name_map(arch, layers)
    for tensor, value in load_file(folder / "model.safetensors").items():
        if not decodes and not tensor.startswith(("encoder.", "shared.")):
            continue
        to = names.get_name(tensor, try_suffixes=(".weight",))
        assert to is not None, tensor
        if value.ndim == 1 or value.dtype == torch.float32:
            writer.add_tensor(to, value.float().numpy())
        else:
            kind = {torch.float16: "F16", torch.bfloat16: "BF16"}[value.dtype]
            writer.add_tensor(to, value.contiguous().view(torch.uint8).numpy(),
                              raw_dtype=gguf.GGMLQuantizationType[kind])
    close(writer)


def tokenizer():
    folder = HERE / "tokenizer" / "spm_unigram"
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString((folder / "tokenizer.model").read_bytes())
    writer = gguf.GGUFWriter(folder / "tokenizer.gguf", "t5")
    writer.add_tokenizer_model("t5")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([piece.piece.encode() for piece in proto.pieces])
    writer.add_token_scores([piece.score for piece in proto.pieces])
    writer.add_token_types([piece.type for piece in proto.pieces])
    writer.add_add_space_prefix(proto.normalizer_spec.add_dummy_prefix)
    writer.add_remove_extra_whitespaces(proto.normalizer_spec.remove_extra_whitespaces)
    writer.add_precompiled_charsmap(proto.normalizer_spec.precompiled_charsmap)
    for kind in "bos", "eos", "unk":
        if (number := getattr(proto.trainer_spec, kind + "_id")) >= 0:
            getattr(writer, f"add_{kind}_token_id")(number)
    writer.add_add_bos_token(False)
    close(writer)


def close(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    for name in "t5_lm", "mt5_lm", "umt5_lm":
        model(name, decodes=True)
    model("t5_lm", decodes=False)
    tokenizer()


if __name__ == "__main__":
    main()
