"""`ropewalk verify` against servers that compute with a wrong formula, and against hostile ones.

The servers answer with the program's own log-probabilities under another setting: `perplexity --per-token` scores every
token of a prompt."""

import contextlib
import http.server
import json
import os
import signal
import subprocess
import threading
import time

import support
from support import MODEL, PROGRAM, run

ASKED = ["--method", "yarn", "--factor", "4"]
YARN = {"rope_type": "yarn", "factor": 4.0}
TRAINED = 256
# (what the server runs, its name, how it is computed)
WRONG = [
    ("asked", ASKED),
    ("unscaled", ["--method", "none"]),
    ("no-attention-factor", ["--rope-scaling", json.dumps({**YARN, "attention_factor": 1.0})]),
    ("unrounded-ramp", ["--rope-scaling", json.dumps({**YARN, "truncate": False})]),
    ("factor-2", ["--method", "yarn", "--factor", "2"]),
    ("factor-8", ["--method", "yarn", "--factor", "8"]),
    ("linear", ["--method", "linear", "--factor", "4"]),
    ("ntk", ["--method", "ntk", "--factor", "4"]),
    ("dynamic", ["--method", "dynamic", "--factor", "4"]),
    ("llama3", ["--method", "llama3", "--factor", "4"]),
]


class Stub:
    """A server on a free port; `answer(path, body)` gives status and text of each request."""

    def __init__(self, answer):
        outer = self
        self.requests = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def reply(self, body):
                outer.requests.append((self.path, body, dict(self.headers)))
                status, text = answer(self.path, body)
                data = text if isinstance(text, bytes) else json.dumps(text).encode()
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)

            def do_GET(self):
                self.reply(None)

            def do_POST(self):
                self.reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def models(**more):
    return 200, {"object": "list", "data": [{"id": "tiny", "object": "model", **more}]}


def echoed(ids, values, **more):
    """As vLLM answers echo with one new token."""
    names = [f"token_id:{i}" for i in [*ids, 7]]
    log_probs = {"tokens": names, "token_logprobs": [None, *values, -1.0], "top_logprobs": None, "text_offset": []}
    usage = {"prompt_tokens": len(ids), "completion_tokens": 1}
    return {"choices": [{"index": 0, "text": "", "logprobs": log_probs}], "usage": usage, **more}


class VerifyCase(support.CliCase):
    known = {}  # what the program said once

    def setUp(self):
        super().setUp()
        self.ids = self.json("tokenize", MODEL, "--text", self.text)

    def log_probs(self, ids, setting):
        """Of ids[1:], as `setting` computes them."""
        key = (tuple(ids), tuple(setting) if len(ids) > 2 else ())
        if key not in self.known:
            prompt, rows = self.folder / "prompt.json", self.folder / "rows.jsonl"
            # Two tokens are too short a window: what stands behind them changes nothing.
            padded = [*ids, *([1] * max(0, 4 - len(ids)))]
            prompt.write_text(json.dumps(padded))
            self.works("perplexity", MODEL, "--ids", prompt, "--no-bos", "--length", len(padded), "--protocol", "windows",
                       "--per-token", rows, *setting)
            nll = [json.loads(line)["nll"] for line in rows.read_text().splitlines()]
            self.known[key] = [-x for x in nll[:len(ids) - 1]]
        return self.known[key]

    def server(self, setting, change=lambda body, answer: answer, **more):
        """Runs `setting`, and answers as `change` has it."""
        def answer(path, body):
            if path == "/v1/models":
                return models(**more)
            ids = body["prompt"]
            return 200, change(body, echoed(ids, self.log_probs(ids, setting)))

        return Stub(answer)

    def command(self, url, *more, asked=ASKED):
        return ["verify", url, "--model", MODEL, "--text", self.text, *asked, *more]

    def said(self, url, *more, code, asked=ASKED):
        result = run(*self.command(url, *more, "--json", asked=asked))
        self.assertEqual(result.returncode, code, result.stderr.decode())
        return json.loads(result.stdout)

    def refuses(self, says, answer, *more, code=1, asked=ASKED):
        with Stub(answer) as stub:
            return self.fails(code, *self.command(stub.url, *more, asked=asked), says=says)


class Verdicts(VerifyCase):
    def test_each_wrong_formula_is_named(self):
        for name, setting in WRONG:
            with self.subTest(name), self.server(setting) as stub:
                said = self.said(stub.url, code=int(name != "asked"))
                self.assertEqual(said["verdict"], "asked" if name == "asked" else "other")
                self.assertEqual(said["nearest"], name)
                self.assertEqual(said["alike"], [])
                self.assertEqual((said["way"], said["positions"], said["compared"]), ("echo", 64, 64))
                self.assertLess(said["candidates"][0]["mean"], 1e-4)
                self.assertGreater(said["candidates"][1]["mean"], 0.02)
                self.assertLess(said["noise"], 1e-5)

    def test_what_is_not_in_the_list(self):
        with self.server(["--method", "yarn", "--factor", "3"]) as stub:
            self.assertEqual(self.said(stub.url, code=1)["verdict"], "none")

    def test_text_says_the_same_as_json(self):
        with self.server(["--method", "none"]) as stub:
            result = run(*self.command(stub.url))
            self.assertEqual(result.returncode, 1)
            out, error = result.stdout.decode(), result.stderr.decode()
        self.assertIn("The server runs the model unscaled; it does not run what you asked for.", out)
        self.assertIn("ropewalk: error: " + stub.url + ": The server runs the model unscaled", error)

    def test_as_shipped_is_the_default(self):
        with self.server(["--method", "none"]) as stub:
            self.assertEqual(self.said(stub.url, code=0, asked=[])["verdict"], "asked")

    def test_few_requests(self):
        with self.server(ASKED) as stub:
            self.said(stub.url, code=0)
        self.assertEqual([path for path, _, _ in stub.requests[:2]], ["/v1/models", "/v1/completions"])
        lengths = [len(body["prompt"]) for _, body, _ in stub.requests[1:]]
        self.assertLessEqual(len(lengths), 18)
        self.assertEqual((lengths[-1], set(lengths[:-1])), (2 * TRAINED, {2}))

    def test_noise(self):
        """A coarse server is another model, one that is a little coarse is not."""
        def moved(nats):
            def change(_, answer):
                values = answer["choices"][0]["logprobs"]["token_logprobs"]
                values[1:] = [max(-99, x - abs(nats) if i % 2 else min(-1e-6, x + nats)) for i, x in enumerate(values[1:])]
                return answer
            return change

        with self.server(ASKED, moved(2.0)) as stub:
            said = self.said(stub.url, code=1)
            self.assertEqual(said["verdict"], "other-model")
            self.assertIn("another model", said["text"])
        with self.server(ASKED, moved(0.01)) as stub:
            self.assertEqual(self.said(stub.url, code=0)["verdict"], "asked")

    def test_key_and_path(self):
        with self.server(ASKED) as stub:
            result = run(*self.command(stub.url + "/v1/", "--json"), env={**os.environ, "OPENAI_API_KEY": "secret"})
            self.assertEqual(result.returncode, 0)
        self.assertEqual({headers.get("Authorization") for _, _, headers in stub.requests}, {"Bearer secret"})
        self.assertNotIn(b"secret", result.stdout + result.stderr)


class NextToken(VerifyCase):
    """Servers without echo, as llama-server: the most probable tokens behind a prompt alone."""

    def test_llama_server(self):
        def answer(path, body):
            if path == "/v1/models":
                return models(meta={"n_ctx": 1024, "n_vocab": 1024})
            ids, tops = body["prompt"], []
            if body["echo"]:  # ignored
                return 200, {"choices": [{"logprobs": {"content": [{"id": 1, "logprob": -1, "top_logprobs": []}]}}]}
            for i in (5, 6):
                tops.append({"id": i, "logprob": self.log_probs([*ids, i], ["--method", "linear", "--factor", "4"])[-1]})
            return 200, {"choices": [{"logprobs": {"content": [{"top_logprobs": tops}]}}]}

        with Stub(answer) as stub:
            said = self.said(stub.url, "--tokens", 16, code=1)
        self.assertEqual((said["verdict"], said["nearest"], said["way"]), ("other", "linear", "next-token"))
        self.assertEqual((said["positions"], said["compared"], said["served_length"]), (4, 8, 1024))
        self.assertLess(said["candidates"][0]["kl"], 1e-6)
        self.assertEqual([len(body["prompt"]) for _, body, _ in stub.requests[-4:]][-1], 2 * TRAINED)

    def test_echo_refused(self):
        def answer(path, body):
            if path == "/v1/models":
                return models()
            if body["echo"]:
                return 500, {"error": {"message": "Only no echo is supported"}}
            return 200, {"choices": [{"logprobs": None}]}

        self.refuses("neither log-probabilities of the prompt", answer)


class Hostile(VerifyCase):
    def completions(self, text, status=200, **more):
        return lambda path, body: models(**more) if path == "/v1/models" else (status, text)

    def test_no_server(self):
        self.fails(1, *self.command("http://127.0.0.1:9"), says="is a server running there?")
        for url in ("", "ftp://host", "http://", "http://a b", "http://host/?q=1"):
            self.fails(2, *self.command(url), says="URL")

    def test_models(self):
        self.refuses("is no JSON", lambda *_: (200, b'{"data": [{'))
        self.refuses('no array "data"', lambda *_: (200, {"data": 7}))
        self.refuses("serves no model", lambda *_: (200, {"data": []}))
        two = (200, {"data": [{"id": "a"}, {"id": "b"}]})
        self.refuses("a, b; choose one with --served-model", lambda *_: two)
        self.refuses("status 404", lambda *_: (404, b"nothing here"))
        self.refuses("OPENAI_API_KEY", lambda *_: (401, {"error": {"message": "no key"}}))
        self.refuses("status 302", lambda *_: (302, b""))

    def test_answers(self):
        self.refuses("no JSON", self.completions(b'{"choices": [{"logprobs": {"token_logprobs": [null, -1.0'))
        self.refuses("no JSON", self.completions(b"[" * 100000))
        self.refuses("neither log-probabilities", self.completions({"choices": []}))
        self.refuses("neither log-probabilities", self.completions({"choices": [{"logprobs": [1, 2]}]}))
        self.refuses("boom", self.completions({"error": {"message": "boom"}}, status=500))
        self.refuses("more than the", self.completions(b" " * (6 << 20)))

    def test_numbers(self):
        for bad in ("NaN", "null", "1e999", "-1e999", "0.5", '"-1"', "[]"):
            def change(_, answer, bad=bad):
                text = json.dumps(answer)
                return text.replace(json.dumps(answer["choices"][0]["logprobs"]["token_logprobs"][1]), bad).encode()

            with self.subTest(bad), self.server(ASKED, change) as stub:
                self.fails(1, *self.command(stub.url), says="the server's answer is not what was asked for")

    def test_other_tokens(self):
        def changed(edit):
            def change(body, answer):
                if len(body["prompt"]) > 2:
                    edit(answer)
                return answer
            return change

        def cut(answer):
            log_probs = answer["choices"][0]["logprobs"]
            log_probs["token_logprobs"] = log_probs["token_logprobs"][100:]

        def other(answer):
            answer["choices"][0]["logprobs"]["tokens"][3] = "token_id:1023"

        def usage(answer):
            answer["usage"]["prompt_tokens"] = 100

        for edit, says in ((cut, "413 log-probabilities for a prompt of 512"), (other, "the server read 1023"),
                           (usage, "the server read 100 tokens of a prompt of 512")):
            with self.subTest(says), self.server(ASKED, changed(edit)) as stub:
                self.fails(1, *self.command(stub.url), says=says)

    def test_vocabulary(self):
        with self.server(ASKED, meta={"n_vocab": 20}) as stub:
            self.fails(1, *self.command(stub.url), says="another tokenizer or model")
        tops = {"choices": [{"logprobs": {"content": [{"top_logprobs": [{"id": 99999, "logprob": -1}]}]}}]}
        self.refuses("the server has another model", self.completions(tops))

    def test_length(self):
        with self.server(ASKED, max_model_len=300) as stub:
            self.fails(1, *self.command(stub.url), says="takes at most 300 tokens")
            self.assertEqual(self.said(stub.url, "--tokens", 32, code=0)["length"], 299)
            self.fails(1, *self.command(stub.url, "--length", 600), says="takes at most 300 tokens")

        def change(body, answer):
            return answer if len(body["prompt"]) <= 300 else {"error": "too long"}

        with self.server(ASKED, change) as stub:
            self.fails(1, *self.command(stub.url), says="0 log-probabilities for a prompt of 512 tokens")
            self.fails(2, *self.command(stub.url, "--length", 256), says="beyond the trained length")

        def refusing(path, body):
            if path == "/v1/models":
                return models()
            ids = body["prompt"]
            if len(ids) > 300:
                return 400, {"error": {"message": "exceeds the available context size (300 tokens)"}}
            return 200, echoed(ids, self.log_probs(ids, ASKED))

        self.refuses("exceeds the available context size (300 tokens)", refusing)
        short = self.folder / "short.txt"
        short.write_text("And the king went.")
        with self.server(ASKED) as stub:
            self.fails(1, "verify", stub.url, "--model", MODEL, "--text", short, *ASKED, says="the text has")

    def test_slow(self):
        def slow(*_):
            time.sleep(5)
            return models()

        begin = time.monotonic()
        self.refuses("--timeout", slow, "--timeout", 1)
        self.assertLess(time.monotonic() - begin, 4)

    def test_interrupt(self):
        asked = threading.Event()

        def hanging(*_):
            asked.set()
            time.sleep(10)
            return models()

        with Stub(hanging) as stub:
            process = subprocess.Popen([PROGRAM, *map(str, self.command(stub.url))], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
            self.assertTrue(asked.wait(60))
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(5), 130)


if __name__ == "__main__":
    support.main()
