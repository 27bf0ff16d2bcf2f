"""Prompts of passkey, JSON key-value pairs and variable tracking, for train.py and evaluate.py.

The words are those of the program's tasks (docs/tasks). Every piece is encoded by itself and the
ids are joined; pieces end where the tokenizer cuts anyway, so the ids are those of the whole text.
"""

import json
from dataclasses import dataclass, field

from common import BOS, HERE

KV_FRONT = ("Extract the value corresponding to the specified key in the JSON object below.\n\n"
            "JSON data:\n")
KV_BETWEEN = "\nCorresponding value:"
VT_FRONT = ("Memorize and track the chain(s) of variable assignment hidden in the following text."
            "\n\n")
VT_QUESTION = ("\nQuestion: Find all variables that are assigned the value {value} in the text "
               "above. Answer: According to the chain(s) of variable assignment in the text above, "
               "{count} variables are assigned the value {value}, they are: ")
NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass
class Prompt:
    """Questions behind one context. Answers begin with tokens that are not scored."""

    context: list
    questions: list = field(default_factory=list)  # (question ids, answer ids, unscored tokens)
    answered: list = field(default_factory=list)  # spans of the context that answer something too

    def row(self):
        """(ids, spans of answers), every question with its answer behind the one before."""
        ids, spans = list(self.context), list(self.answered)
        for question, answer, unscored in self.questions:
            ids += question
            spans.append((len(ids) + unscored, len(ids) + len(answer)))
            ids += answer
        return ids, spans

    def apart(self):
        """(ids, spans, positions, owners) of the same, with every question behind the context alone,
        as the program asks: an owner is 0 for the context, or the number of a question."""
        ids, spans = self.row()
        behind = len(self.context)
        positions, owners = list(range(behind)), [0] * behind
        for number, (question, answer, _) in enumerate(self.questions, 1):
            size = len(question) + len(answer)
            positions += range(behind, behind + size)
            owners += [number] * size
        return ids, spans, positions, owners


class Prompts:
    """Each method gives a prompt of at most `room` tokens with all its questions, BOS included."""

    def __init__(self, tokenizer):
        self.encode = lambda text: tokenizer.encode(text, add_special_tokens=False).ids
        self.form = json.loads((HERE / "passkey.json").read_text())
        self.grass = self.encode(self.form["default_filler"])
        self.noise = self.encode("\n" + NOISE)

    def passkey(self, rng, room, bos, needles, asked, filler):
        """`needles` pass keys, `asked` of which are asked for; filler(n) gives n tokens."""
        names = [self.form["names"][i] for i in rng.permutation(len(self.form["names"]))[:needles]]
        keys = [str(int(rng.integers(10000, 100000))) for _ in names]
        fill = lambda part, i: self.encode(
            self.form[part].replace("{name}", names[i]).replace("{key}", keys[i]))
        parts = [fill("needle", i) for i in range(len(names))]
        questions = [(fill("question", i), fill("answer", i), 1)
                     for i in rng.permutation(len(names))[:asked].tolist()]
        left = room - bos - sum(map(len, parts)) - sum(len(q) + len(a) for q, a, _ in questions)
        if left < 0:
            return None
        text, context, done = filler(left), [BOS] * bos, 0
        for cut, part in zip(sorted(rng.integers(0, left + 1, len(parts)).tolist()), parts):
            context += text[done:cut] + part
            done = cut
        return Prompt(context + text[done:], questions)

    def kv(self, rng, room, bos, asked, digits=32, between=KV_BETWEEN, names=False, apart=False):
        """As many pairs as fit; the first `digits` of every UUID (in the program's task all 32).

        A question has `between` behind its key. `names`: keys are names, values three digits.
        `apart`: with the longest question alone; the first and the last pair, which are missed most,
        are always asked for.
        """
        pairs, entries = [], []
        words = [self.form["names"][i] for i in rng.permutation(len(self.form["names"]))]
        context = [BOS] * bos + self.encode(KV_FRONT)
        left = room - len(context)
        while sum(map(len, entries)) < left:
            pair = [uuid(rng)[:36 if digits == 32 else digits] for _ in range(2)]
            if names:
                pair = [words[len(pairs) % len(words)], pair[1][:3]]
            text = f'{" " if pairs else "{"}"{pair[0]}": "{pair[1]}",\n'
            pairs.append(pair)
            entries.append(self.encode(text))
        end = self.encode("}")  # in the place of a comma and a new line
        for count in range(len(pairs), 1, -1):
            order = rng.permutation(count).tolist()
            if apart:
                order = [0, count - 1] + [i for i in order if 0 < i < count - 1]
            questions = [(self.encode(f'\n\nKey: "{pairs[i][0]}"{between}'),
                          self.encode(f' "{pairs[i][1]}'), 2) for i in order[:asked]]
            body = sum(entries[:count], [])[:-2] + end
            sizes = [len(q) + len(a) for q, a, _ in questions]
            if len(body) + (max(sizes) if apart else sum(sizes)) <= left:
                return Prompt(context + body, questions)
        return None

    def chains(self, rng, letters, chains, hops):
        """The lines that assign, each behind the one that it needs, and what is asked of them."""
        names = [[word(rng, letters) for _ in range(hops + 1)] for _ in range(chains)]
        values = [str(int(rng.integers(10000, 100000))) for _ in names]
        lines, order = [], rng.permutation(sum(([i] * (hops + 1) for i in range(chains)), []))
        for at, i in enumerate(order.tolist()):
            j = order[:at].tolist().count(i)
            of = f"VAR {names[i][j - 1]} " if j else values[i]
            lines.append(self.encode(f"\nVAR {names[i][j]} = {of}"))
        questions = []
        for i in rng.permutation(chains).tolist():
            text = VT_QUESTION.replace("{value}", values[i]).replace("{count}", str(hops + 1))
            # Behind a space the answer's first space is a token with the name's first letter.
            questions.append((self.encode(text), self.encode("\n " + " ".join(names[i]))[1:], 0))
        return lines, questions

    def vt(self, rng, room, bos, sections):
        """Sections (letters of a name, chains, hops), all but the last with their answers.

        RULER's prompt is [(3, 1, 4), (5, 1, 4)], where the first one has at most 500 tokens. Noise
        fills the room: all of it in the last section but for what the ones before take.
        """
        made = [self.chains(rng, *section) for section in sections]
        front = self.encode(VT_FRONT)
        size = lambda lines, questions: len(front) - 1 + sum(map(len, lines)) + sum(
            len(q) + len(a) for q, a, _ in questions)
        left = room - bos - sum(size(*one) for one in made) - 2 * (len(made) - 1)
        if left < 0:
            return None
        noise, prompt = left // len(self.noise), Prompt([BOS] * bos, [])
        for i, (lines, questions) in enumerate(made):
            last = i + 1 == len(made)
            mine = noise if last else min(noise, (500 - size(lines, questions)) // len(self.noise))
            noise -= mine
            # Where a line stands: in front of which of the noise.
            slots = (rng.permutation(mine)[:len(lines)] if mine >= len(lines) else
                     rng.integers(0, mine + 1, len(lines)))
            slots, body = sorted(slots.tolist()), []
            for slot in range(mine + 1):
                body += sum((line for at, line in zip(slots, lines) if at == slot), [])
                body += self.noise if slot < mine else []
            prompt.context += front + body[1:]  # the front ends with the new line
            if last:
                prompt.questions = questions
            for question, answer, _ in [] if last else questions:
                prompt.context += question
                prompt.answered.append((len(prompt.context), len(prompt.context) + len(answer)))
                prompt.context += answer
            prompt.context += [] if last else self.encode("\n\n")
        return prompt


def word(rng, letters):
    return "".join(LETTERS[i] for i in rng.integers(0, 26, letters))


def hexadecimal(rng, digits):
    return "".join("0123456789abcdef"[i] for i in rng.integers(0, 16, digits))


def uuid(rng):
    """A random UUID of version 4."""
    text = hexadecimal(rng, 32)
    text = text[:12] + "4" + text[13:16] + "89ab"[int(rng.integers(4))] + text[17:]
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
