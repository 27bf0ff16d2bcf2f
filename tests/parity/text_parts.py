"""Logits of ropewalk on the text of models that read images too, against transformers: random tiny models, saved whole.

    text_parts.py LOGITS_DUMP      transformers 4.57 or 5; what the installed one lacks is named

The models' own classes run, with their towers and projectors in the files; the text has no images.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers

LIMIT = 2e-5  # of max |logit|, that of compare.py
VOCAB, TOKENS, FAR_TOKENS = 64, 300, 40
TEXT = dict(hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
            num_hidden_layers=4, vocab_size=VOCAB, max_position_embeddings=512)
YARN = dict(rope_type="yarn", rope_theta=500.0, factor=4.0, original_max_position_embeddings=32, mscale=1.0,
            mscale_all_dim=1.0, llama_4_scaling_beta=0.1)
LATENT = dict(num_key_value_heads=4, head_dim=None, kv_lora_rank=16, q_lora_rank=24, qk_nope_head_dim=16,
              qk_rope_head_dim=8, v_head_dim=12, n_routed_experts=8, n_shared_experts=2, moe_intermediate_size=16,
              num_experts_per_tok=3, n_group=1, topk_group=1, first_k_dense_replace=1)
SMALL = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=4)


def without(keys, **more):
    return {k: v for k, v in {**keys, **more}.items() if v is not None}


def cases():
    """name -> (class, its configuration, text, vision)"""
    yield "gemma3", "Gemma3", dict(TEXT, model_type="gemma3_text", sliding_window=24, query_pre_attn_scalar=8,
                                   rope_local_base_freq=100.0, rope_theta=500.0), dict(SMALL, model_type="siglip_vision_model"), {}
    yield "mistral3 of mistral", "Mistral3", dict(TEXT, model_type="mistral", rope_theta=500.0, sliding_window=None), \
        dict(SMALL, head_dim=8, model_type="pixtral"), {}
    yield "mistral3 of ministral3", "Mistral3", dict(TEXT, model_type="ministral3", rope_parameters=YARN), \
        dict(SMALL, head_dim=8, model_type="pixtral"), {}
    yield "mistral3 of mistral4", "Mistral3", without({**TEXT, **LATENT}, model_type="mistral4", rope_parameters=YARN), \
        dict(SMALL, head_dim=8, model_type="pixtral"), {}
    yield "llama4", "Llama4", dict(TEXT, model_type="llama4_text", intermediate_size_mlp=40, num_local_experts=4,
                                   num_experts_per_tok=1, interleave_moe_layer_step=2, attention_chunk_size=64,
                                   rope_theta=500.0, pad_token_id=0), \
        dict(SMALL, vision_output_dim=16, projector_input_dim=16, projector_output_dim=16, model_type="llama4_vision_model"), {}
    yield "llava of llama", "Llava", dict(TEXT, model_type="llama", rope_theta=500.0), \
        dict(SMALL, projection_dim=16, model_type="clip_vision_model"), dict(image_seq_length=16)
    axes = dict(rope_type="default", mrope_section=[1, 1, 2])
    qwen_vision = dict(depth=1, hidden_size=16, num_heads=2, intermediate_size=24, patch_size=4, out_hidden_size=32)
    yield "qwen2_vl", "Qwen2VL", dict(TEXT, model_type="qwen2_vl_text", rope_theta=500.0, rope_scaling=axes), \
        dict(depth=1, embed_dim=16, num_heads=2, hidden_size=32, patch_size=4, mlp_ratio=2), {}
    yield "qwen2_5_vl", "Qwen2_5_VL", dict(TEXT, model_type="qwen2_5_vl_text", rope_theta=500.0, rope_scaling=axes), \
        qwen_vision, {}
    turns = dict(axes, mrope_section=[2, 1, 1], mrope_interleaved=True)
    qwen_vision = dict(qwen_vision, deepstack_visual_indexes=[0], num_position_embeddings=16)
    yield "qwen3_vl", "Qwen3VL", dict(TEXT, model_type="qwen3_vl_text", rope_theta=500.0, rope_scaling=turns), qwen_vision, {}
    yield "qwen3_vl_moe", "Qwen3VLMoe", dict(TEXT, model_type="qwen3_vl_moe_text", rope_theta=500.0, rope_scaling=turns,
                                             num_experts=8, num_experts_per_tok=2, moe_intermediate_size=24), qwen_vision, {}


def write(folder, name, text, vision, more):
    config_class = getattr(transformers, name + "Config")
    config = config_class(text_config=text, vision_config=vision, **more)
    config.get_text_config()._attn_implementation = "eager"
    model_class = getattr(transformers, name + "ForConditionalGeneration")
    torch.manual_seed(4)
    model = model_class._from_config(config, attn_implementation="eager").eval().float()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            one = key.endswith("norm.weight") and "gemma" not in text["model_type"]
            parameter.copy_(torch.randn_like(parameter) * 0.2 + (1 if one else 0))
        model.tie_weights()
    model.save_pretrained(folder)
    return model


def publish(folder):
    """config.json as Qwen2-VL was published: the keys of the text at the top."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    text = {k: v for k, v in config.pop("text_config").items() if k in TEXT and k != "head_dim"}
    path.write_text(json.dumps({**config, **text, "rope_theta": 500.0, "tie_word_embeddings": False,
                                "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]}}))


def logits(model, ids, offset):
    with torch.no_grad():
        positions = torch.arange(offset, offset + len(ids))[None]
        return model(input_ids=torch.tensor([ids]), position_ids=positions, use_cache=False).logits[0].float().numpy()


def main(program):
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    ids = [int(i) for i in rng.integers(1, VOCAB - 8, TOKENS)]
    runs = {"prefill": (ids, 0, TOKENS), "decode": (ids[:60], 0, 1), "far": (ids[:FAR_TOKENS], 131071 - 20, FAR_TOKENS)}
    jobs, expected, failures = [], [], 0
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        for number, (name, class_name, text, vision, more) in enumerate(cases()):
            folder = root / str(number)
            try:
                model = write(folder, class_name, text, vision, more)
            except (AttributeError, KeyError, ValueError) as error:
                if not transformers.__version__.startswith("4."):
                    raise
                print(f"{name}: not in transformers {transformers.__version__}: {str(error)[:80]}")
                continue
            if name == "qwen2_vl":
                publish(folder)
            for run, (tokens, offset, chunk) in runs.items():
                if name == "llama4" and offset:
                    continue  # transformers counts its chunks and its temperature from the first token of a call
                out = root / f"{len(jobs)}.f32"
                jobs.append(dict(model=str(folder), ids=tokens, chunk=chunk, offset=offset,
                                 final_length=offset + len(tokens), angles="float32", out=str(out)))
                expected.append((name, run, logits(model, tokens, offset), out))
        (root / "jobs.json").write_text(json.dumps(jobs))
        subprocess.run([program, str(root / "jobs.json")], check=True)
        for name, run, theirs, out in expected:
            ours = np.fromfile(out, np.float32).reshape(theirs.shape)
            difference = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
            failures += not difference <= LIMIT
            print(f"{name:24} {run:8} {np.abs(theirs).max():8.3f} {difference:10.2e}{'' if difference <= LIMIT else '  FAILED'}")
    print(f"transformers {transformers.__version__}: {len(expected)} comparisons, {failures} failed (limit {LIMIT} of the largest logit)")
    return 1 if failures or not expected else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
