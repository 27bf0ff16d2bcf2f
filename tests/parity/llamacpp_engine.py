"""llama.cpp through llama-cpp-python's ctypes: logits of token ids at given positions, in float32.

    llamacpp_engine.py MODEL.gguf    exits 0 when llama.cpp loads the file and computes a token
"""

import ctypes
import sys

import llama_cpp as lc
import numpy as np

F32 = 0  # GGML_TYPE_F32

_messages = []


@lc.llama_log_callback
def _collect(_level, text, _data):
    _messages.append(text.decode(errors="replace"))


lc.llama_log_set(_collect, ctypes.c_void_p(0))
lc.llama_backend_init()


class LoadError(Exception):
    """What llama.cpp said when it did not take a file."""


class Engine:
    def __init__(self, path):
        params = lc.llama_model_default_params()
        params.n_gpu_layers = 0
        params.use_extra_bufts = False  # no repacked weights: plain kernels
        _messages.clear()
        self.model = lc.llama_model_load_from_file(str(path).encode(), params)
        if not self.model:
            raise LoadError("".join(m for m in _messages if "error" in m.lower()).strip())
        self.vocab = lc.llama_model_get_vocab(self.model)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        lc.llama_model_free(self.model)

    def _context(self, context):
        params = lc.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = context
        params.n_threads = params.n_threads_batch = 1
        params.type_k = params.type_v = F32  # the default, float16, rounds keys to 11 bits
        params.flash_attn_type = lc.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.offload_kqv = params.op_offload = False
        ctx = lc.llama_init_from_model(self.model, params)
        if not ctx:
            raise LoadError("".join(_messages[-5:]))
        return ctx

    def logits(self, ids, offset=0, context=512, chunk=None):
        """[ids, vocab] float32. `context` cells choose between LongRoPE's sides."""
        return self._run(None, ids, offset, context, chunk)

    def answers(self, prefix, ids, chunk=None, context=512):
        """Of an encoder-decoder: [ids, vocab] behind what the encoder reads."""
        return self._run(prefix, ids, 0, context, chunk)

    def _run(self, prefix, ids, offset, context, chunk):
        ctx = self._context(context)
        chunk = chunk or len(ids)
        batch = lc.llama_batch_init(max(chunk, len(prefix or [])), 0, 1)
        try:
            if prefix is not None:
                self._fill(batch, prefix, 0)
                if (status := lc.llama_encode(ctx, batch)) != 0:
                    raise RuntimeError(f"llama_encode returned {status}: " + "".join(_messages[-5:]))
            rows = [self._decode(ctx, batch, ids[at:at + chunk], offset + at)
                    for at in range(0, len(ids), chunk)]
            return np.concatenate(rows)
        finally:
            lc.llama_batch_free(batch)
            lc.llama_free(ctx)

    @staticmethod
    def _fill(batch, ids, first):
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i] = token
            batch.pos[i] = first + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = 1

    def _decode(self, ctx, batch, ids, first):
        self._fill(batch, ids, first)
        status = lc.llama_decode(ctx, batch)
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status}: " + "".join(_messages[-5:]))
        size = lc.llama_vocab_n_tokens(self.vocab)
        out = np.ctypeslib.as_array(lc.llama_get_logits(ctx), shape=(len(ids), size))
        return out.copy()

    def bos(self):
        return lc.llama_vocab_bos(self.vocab)

    def tokenize(self, text):
        """Ids without special tokens put in front."""
        data = text.encode()
        ids = (lc.llama_token * (len(data) + 8))()
        n = lc.llama_tokenize(self.vocab, data, len(data), ids, len(ids), False, False)
        return list(ids[:n])


if __name__ == "__main__":
    with Engine(sys.argv[1]) as engine:
        engine.logits([1, 2, 3])
