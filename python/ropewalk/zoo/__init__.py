"""Small transformers whose position encoding is any combination of those of this library: one module, one file format
(docs/zoo.md), which train alike, so that encodings can be compared.

    model = ropewalk.zoo.Model({"positions": {"bias": {"type": "alibi"}}})
    logits = model(ids)                      # int64 [batch, tokens] -> [batch, tokens, 1024]
    model.save_pretrained("alibi")
    again = ropewalk.zoo.load("alibi")

Needs PyTorch for models, safetensors for files; `read_config` and `ENTRIES` need neither.
"""

from typing import TYPE_CHECKING, Any

from ropewalk.zoo._config import read_config
from ropewalk.zoo.entries import DEFAULT, ENTRIES

if TYPE_CHECKING:
    from ropewalk.zoo._model import Model, load
    from ropewalk.zoo._train import train
    from ropewalk.zoo._tune import tune

__all__ = ["DEFAULT", "ENTRIES", "Model", "load", "read_config", "train", "tune"]


def __getattr__(name: str) -> Any:
    if name in ("Model", "load"):
        from ropewalk.zoo import _model

        return getattr(_model, name)
    if name == "train":
        from ropewalk.zoo import _train

        return _train.train
    if name == "tune":
        from ropewalk.zoo import _tune

        return _tune.tune
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
