"""ropewalk inspect --text: where attention looks and what pairs add to the scores; tests/eval has the numbers beside their definitions."""

import json
import math
import shutil

import support

GOLDEN = support.SOURCE / "tests/golden"


class Attention(support.CliCase):
    def measured(self, *arguments):
        return self.json("inspect", *arguments, "--json")["positions"]

    def golden(self, name, kind="hf_models"):
        folder = self.folder / name
        folder.mkdir()
        config = "default.json" if kind == "hf_models" else "config.json"
        shutil.copy(GOLDEN / kind / name / config, folder / "config.json")
        shutil.copy(GOLDEN / kind / name / "model.safetensors", folder)
        return folder

    def check(self, at, p):
        """What is true of every measurement."""
        self.assertEqual(p["edges"][0], 0)
        self.assertEqual(p["edges"][-1], p["tokens"] - 1)
        self.assertEqual(p["edges"], sorted(set(p["edges"])))
        self.assertEqual(p["queries"][-1], p["tokens"] - 1)
        self.assertAlmostEqual(sum(p["keys"]), sum(p["queries"]) / len(p["queries"]), 6)
        pairs = at["rotations"][0]["pairs"]
        for layer in p["layers"]:
            self.assertAlmostEqual(sum(layer["mass"]) + layer["first_token"] + layer["sink"], 1, 5)
            s = layer["logits"]
            self.assertAlmostEqual(sum(s["position"]) + sum(s["content"]) + s["unrotated"], 1, 9)
            slow = [x["pair"] for x in pairs if x["trained_rotations"] < 1]
            self.assertEqual(s["incomplete"], slow)
            for i, share in enumerate(s["unseen"]):
                # New angles come with the trained length, in pairs that never turned, and never in others.
                f = pairs[i]["frequency"] if p["method"] != "hope" or i not in slow else 0
                met = i not in slow or f * (s["distances"] - 1) <= f * (at["trained_length"] - 1)
                self.assertEqual(share > 0, not met, (p["method"], p["tokens"], i))

    def test_every_length_and_hope(self):
        at = self.measured(support.MODEL, "--text", self.text, "--lengths", "128,512")  # of a model of 256
        self.assertEqual([(p["method"], p["tokens"]) for p in at["attention"]],
                         [(m, n) for m in ("as shipped", "hope") for n in (128, 256, 512)])
        self.assertEqual(at["attention_note"], "")
        for p in at["attention"]:
            self.check(at, p)
        shipped, hope = at["attention"][2], at["attention"][5]
        self.assertIn(256, shipped["edges"])
        self.assertTrue(all(sum(layer["logits"]["unseen"]) > 0 for layer in shipped["layers"]))
        self.assertTrue(all(sum(layer["logits"]["unseen"]) == 0 for layer in hope["layers"]))
        # The tokenizer's BOS is in front, so the same text as ids without it is another.
        self.assertEqual(self.measured(support.MODEL, "--text", self.text, "--length", 512)["attention"][-1], hope)
        ids = self.json("tokenize", support.MODEL, "--text", self.text)
        numbers = self.folder / "ids.txt"
        numbers.write_text(json.dumps([0, *ids]))
        again = self.measured(support.MODEL, "--ids", numbers, "--length", 512)["attention"][-1]
        for a, b in zip(again["layers"], hope["layers"], strict=True):
            for x, y in zip(a["mass"], b["mass"], strict=True):
                self.assertAlmostEqual(x, y, 6)

    def test_as_text_and_page(self):
        text = self.works("inspect", support.MODEL, "--text", self.text, "--lengths", 512).decode()
        for words in ("Where attention looks at 256 tokens, as shipped", "at 512 tokens, hope", "256 on", "never turned",
                      "one key of the first layer has"):
            self.assertIn(words, text)
        page = self.folder / "page.html"
        self.works("inspect", support.MODEL, "--text", self.text, "--html", "-o", page)
        html = page.read_text()
        for words in ("const AttentionPictures", '"attention":[{"method":"as shipped"'):
            self.assertIn(words, html)
        self.assertNotIn("{{", html.split("<script>")[0])

    def test_other_models(self):
        ids = self.folder / "ids.txt"
        ids.write_text(json.dumps([7 * i % 59 + 3 for i in range(64)]))
        for name, absent in (("gpt2", "rotates nothing"), ("mpt", "rotates nothing"), ("gpt_oss", ""), ("llama4", ""),
                             ("deepseek_v3", ""), ("gemma3", "")):
            at = self.measured(self.golden(name), "--ids", ids)
            self.assertTrue(at["attention"], name)
            for layer in at["attention"][0]["layers"]:
                self.assertAlmostEqual(sum(layer["mass"]) + layer["first_token"] + layer["sink"], 1, 5, name)
                self.assertTrue(all(math.isfinite(m) and m >= 0 for m in layer["mass"]))
                if absent:
                    self.assertIsNone(layer["logits"])
                    self.assertIn(absent, layer["no_logits"])
            self.assertEqual(any(layer["sink"] > 0 for layer in at["attention"][0]["layers"]), name == "gpt_oss")
            if absent:
                self.assertIn(absent, self.works("inspect", self.folder / name, "--ids", ids).decode())

    def test_what_cannot_be_measured(self):
        self.assertIsNone(self.measured(support.MODEL)["attention"])  # nothing was run
        self.fails(2, "inspect", support.MODEL, "--lengths", "128,256", says="several lengths with --text or --ids alone")
        ids = self.folder / "ids.txt"
        ids.write_text("[1, 2, 3, 4, 5]")
        at = self.measured(support.MODEL, "--ids", ids)
        self.assertEqual(at["attention"], [])
        self.assertIn("needs 16 tokens of text or more, there are 5", at["attention_note"])
        self.assertIn(at["attention_note"], self.works("inspect", support.MODEL, "--ids", ids).decode())
        ids.write_text(json.dumps([5] * 100))
        at = self.measured(support.MODEL, "--ids", ids, "--lengths", "64,512,1024")
        self.assertEqual([p["tokens"] for p in at["attention"]], [64, 100, 64, 100])
        self.assertIn("the text has 100 tokens; longer lengths are measured at that", at["attention_note"])
        for name in ("bert", "t5"):  # an encoder, and one without any decoder of its own
            folder = self.golden(name, "hf_encoders")
            self.assertIn("encoder", self.fails(1, "inspect", folder, "--ids", ids))


if __name__ == "__main__":
    support.main()
