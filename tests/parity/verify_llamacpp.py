"""`ropewalk verify` against a real llama-server with right and wrong flags.

usage: verify_llamacpp.py BUILD_DIR LLAMA_SERVER     (scripts/verify_llamacpp.sh builds both)
"""

import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "support"))
from short_model import short_model  # noqa: E402

MODEL = str(short_model())  # 256 tokens
YARN = ["--rope-scaling", "yarn", "--rope-scale", "4", "--yarn-orig-ctx", "256"]
# Without flags of YaRN the server takes no more than the file's context_length.
LONGER = ["--override-kv", "llama.context_length=int:1024"]
ASK_YARN = ["--method", "yarn", "--factor", "4"]
# (what it shows, type of the GGUF file, flags of the server, what is asked, verdict, nearest)
CASES = [
    ("right flags", "bf16", YARN, ASK_YARN, "asked", "asked"),
    ("right flags, weights in 8 bits", "q8_0", YARN, ASK_YARN, "asked", "asked"),
    (
        "right flags, keys and values in 8 bits",
        "bf16",
        [*YARN, "-fa", "on", "-ctk", "q8_0", "-ctv", "q8_0"],
        ASK_YARN,
        "asked",
        "asked",
    ),
    ("no flags", "bf16", LONGER, ASK_YARN, "other", "unscaled"),
    ("no flags, as asked", "bf16", LONGER, ["--method", "none"], "asked", "asked"),
    ("factor 2", "bf16", [*LONGER, *YARN, "--rope-scale", "2"], ASK_YARN, "other", "factor-2"),
    ("linear", "bf16", ["--rope-scaling", "linear", "--rope-scale", "4", *LONGER], ASK_YARN, "other", "linear"),
    ("YaRN unasked", "bf16", YARN, ["--method", "linear", "--factor", "4"], "other", "yarn"),
    ("another beta", "bf16", [*YARN, "--yarn-beta-fast", "8"], ASK_YARN, "none", None),
    (
        "a ramp that is not rounded, which llama.cpp lacks",
        "bf16",
        YARN,
        ["--rope-scaling", '{"rope_type": "yarn", "factor": 4.0, "truncate": false}'],
        "other",
        None,
    ),
]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    def __init__(self, program, flags):
        self.url = f"http://127.0.0.1:{free_port()}"
        port = self.url.rpartition(":")[2]
        self.process = subprocess.Popen(
            [program, "--host", "127.0.0.1", "--port", port, "-t", "1", "--parallel", "1", *flags],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self):
        for _ in range(600):
            if self.process.poll() is not None:
                sys.exit(f"verify_llamacpp.py: llama-server ended with {self.process.returncode}")
            try:
                with urllib.request.urlopen(self.url + "/health") as answer:
                    if answer.status == 200:
                        return self
            except OSError:
                time.sleep(0.1)
        sys.exit("verify_llamacpp.py: llama-server does not answer")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def text_file(folder):
    """Prose of a kind, by a generator of its own."""
    words = "the king and people of land went unto city saw river day took his word field".split()
    state, text = 7, []
    for i in range(4000):
        state = (state * 1103515245 + 12345) % 2**31
        text.append(words[(state >> 8) % len(words)] + (".\n" if i % 11 == 10 else ""))
    path = pathlib.Path(folder) / "text.txt"
    path.write_text(" ".join(text))
    return str(path)


def main():
    build, server = pathlib.Path(sys.argv[1]), sys.argv[2]
    program, wrong = build / "ropewalk", 0
    with tempfile.TemporaryDirectory() as folder:
        text = text_file(folder)
        for kind in sorted({case[1] for case in CASES}):
            gguf = f"{folder}/{kind}.gguf"
            subprocess.run([program, "convert", MODEL, "-o", gguf, "--type", kind], check=True, capture_output=True)
        for what, kind, flags, asked, verdict, nearest in CASES:
            with Server(server, ["-m", f"{folder}/{kind}.gguf", "-c", "1024", *flags]) as s:
                run = subprocess.run(
                    [program, "verify", s.url, "--model", MODEL, "--text", text, *asked, "--json"], capture_output=True, text=True
                )
            if not run.stdout:
                sys.exit(f"verify_llamacpp.py: {what}: {run.stderr}")
            said = json.loads(run.stdout)
            good = said["verdict"] == verdict and (nearest is None or said["nearest"] == nearest)
            good = good and run.returncode == (verdict != "asked")
            wrong += not good
            first, second = said["candidates"][:2]
            print(
                f"{'ok   ' if good else 'WRONG'} {what}: {said['verdict']}, nearest {first['name']} at {first['mean']:.4f} nats, "
                f"then {second['name']} at {second['mean']:.4f}; noise {said['noise']:.4f}, allowed {said['tolerance']:.4f}"
            )
    if wrong:
        sys.exit(f"verify_llamacpp.py: {wrong} of {len(CASES)} verdicts are wrong")


if __name__ == "__main__":
    main()
