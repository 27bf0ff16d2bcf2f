"""The embedded model with a shorter trained length in its files, so that tests measure beyond it quickly."""

import atexit
import json
import pathlib
import shutil
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def short_model(length=256):
    """A folder with the files of models/ that say `length` tokens; it is removed when the process ends."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ropewalk-")) / "models"
    atexit.register(shutil.rmtree, folder.parent, ignore_errors=True)
    folder.mkdir()
    for name in ("model.safetensors", "tokenizer.json"):
        shutil.copyfile(ROOT / "models" / name, folder / name)
    for name, key in (("config.json", "max_position_embeddings"), ("tokenizer_config.json", "model_max_length")):
        content = json.loads((ROOT / "models" / name).read_text())
        (folder / name).write_text(json.dumps({**content, key: length}, indent=2) + "\n")
    return folder
