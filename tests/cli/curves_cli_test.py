"""ropewalk curves: its numbers against the formulas, typed again with decimal numbers, so that far angles are exact."""

import decimal
import json
import math
import re
from decimal import Decimal

import support

decimal.getcontext().prec = 60


def arctan_of_inverse(n):
    total, power, k = Decimal(0), Decimal(1) / n, 0
    while abs(power) > Decimal(10) ** -58:
        total += power / (2 * k + 1) * (-1) ** k
        power /= n * n
        k += 1
    return total


TURN = 8 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))  # Machin: pi/4 = 4 atan 1/5 - atan 1/239


def frequencies(base, dim):
    return [Decimal(base) ** (Decimal(-2 * i) / dim) for i in range(dim // 2)]


def angle(theta, m):
    return float(m * theta % TURN)


def mean(thetas, m):
    return math.fsum(math.cos(angle(t, m)) for t in thetas) / len(thetas)


def bound(thetas, m):
    total, s = 0, 0j
    for t in thetas:
        s += complex(math.cos(angle(t, m)), math.sin(angle(t, m)))
        total += abs(s)
    return total / len(thetas)


def cosine_integral(x):
    """The power series up to 40, then the asymptotic one, whose least term is below 1e-16 there."""
    if x < 40:
        euler = Decimal("0.57721566490153286060651209008240243104215933593992")
        total, term, k = euler + x.ln(), Decimal(1), 0
        while k < 40 or abs(term) > Decimal(10) ** -40:
            k += 1
            term *= -x * x / ((2 * k - 1) * (2 * k))
            total += term / (2 * k)
        return float(total)
    near, y = float(x % TURN), float(x)
    sines = sum((-1) ** n * math.factorial(2 * n) / y ** (2 * n) for n in range(15))
    cosines = sum((-1) ** n * math.factorial(2 * n + 1) / y ** (2 * n + 1) for n in range(15))
    return (math.sin(near) * sines - math.cos(near) * cosines) / y


def integral(base, m):
    if m == 0:
        return 1
    if base == 1:
        return math.cos(angle(Decimal(1), m))
    return (cosine_integral(Decimal(m)) - cosine_integral(Decimal(m) / base)) / math.log(base)


def root_mean_square(values):
    return math.sqrt(math.fsum(v * v for v in values) / len(values))


def longest(base, dim, limit):
    thetas = [float(base) ** (-2 * i / dim) for i in range(dim // 2)]
    for m in range(limit + 1):
        if math.fsum(math.cos(m * t) for t in thetas) < 0:
            return m - 1
    return limit


class Curves(support.CliCase):
    def curves(self, *arguments):
        return self.json("curves", *arguments, "--json")

    def test_curves_are_the_formulas(self):
        for dim, length, bases in ((128, 131072, (1, 10, 100, 10000, 500000)), (96, 2**30, (10000,)),
                                   (2, 1025, (1, 10000)), (1024, 7, (100,))):
            got = self.curves("--dim", dim, "--base", ",".join(map(str, bases)), "--length", length)
            self.assertEqual((got["dim"], got["length"]), (dim, length))
            self.assertEqual([b["base"] for b in got["bases"]], list(bases))
            for b in got["bases"]:
                thetas = frequencies(int(b["base"]), dim)
                self.assertEqual((b["curve"][0]["distance"], b["curve"][-1]["distance"]), (0, length))
                for f, pair in zip(b["heat_frequencies"], got["heat_pairs"], strict=True):
                    self.assertAlmostEqual(f / float(thetas[pair]), 1, 14)
                for point in b["curve"]:
                    m = point["distance"]
                    self.assertAlmostEqual(point["mean"], mean(thetas, m), 12)
                    self.assertAlmostEqual(point["bound"], bound(thetas, m), 11)
                    self.assertAlmostEqual(point["integral"], integral(int(b["base"]), m), 12)
                    for cos, pair in zip(point["cos"], got["heat_pairs"], strict=True):
                        self.assertAlmostEqual(cos, math.cos(angle(thetas[pair], m)), 12)

    def test_pairs_of_the_heat_map(self):
        for dim, count in ((2, 1), (4, 2), (32, 16), (128, 16), (1024, 16)):
            pairs = self.curves("--dim", dim, "--base", 100, "--length", 16)["heat_pairs"]
            self.assertEqual((pairs[0], pairs[-1], len(pairs)), (0, dim // 2 - 1, count))
            self.assertEqual(pairs, sorted(set(pairs)))

    def test_bases_and_lengths(self):
        got = self.curves("--dim", 16, "--base", "1,100,10000", "--length", 600)
        for b in got["bases"]:
            self.assertEqual(b["longest_context"], longest(b["base"], 16, 4000))
        self.assertEqual([b["context"] for b in got["base_bounds"]], [600])
        for b in got["base_bounds"]:
            self.assertGreaterEqual(longest(b["base"], 16, b["context"]), b["context"])
            self.assertLess(longest(b["base"] / 1.0001, 16, b["context"]), b["context"])
        # The one frequency of two dimensions is 1 whatever the base.
        alone = self.curves("--dim", 2, "--base", 10000, "--length", 100)
        self.assertEqual((alone["base_bounds"], alone["bases"][0]["longest_context"]), ([], 1))
        self.assertIn("no base supports", self.works("curves", "--dim", 2, "--length", 100).decode())
        # Bounds beyond 262144 tokens are not searched, and it says so.
        self.assertEqual(self.curves("--dim", 8, "--length", "1m")["base_bounds"][-1]["context"], 262144)
        self.assertIn("bounds end at 262144", self.works("curves", "--dim", 8, "--length", "1m").decode())

    def test_smoothness(self):
        got = self.curves("--dim", 24, "--base", "1,10,10000", "--length", 200)
        self.assertEqual(got["smooth_distances"], 200)
        for b in got["bases"]:
            self.assertEqual([s["dim"] for s in b["smoothness"]], [8, 16, 24, 32, 64, 128, 256, 512, 1024])
            for s in b["smoothness"][:5]:
                thetas = frequencies(int(b["base"]), s["dim"])
                c = [mean(thetas, m) for m in range(202)]
                off = [c[m] - integral(int(b["base"]), m) for m in range(1, 201)]
                bends = [c[m - 1] - 2 * c[m] + c[m + 1] for m in range(1, 201)]
                self.assertAlmostEqual(s["roughness"], root_mean_square(bends), 12)
                self.assertAlmostEqual(s["deviation"], root_mean_square(off), 12)
                self.assertAlmostEqual(s["largest_deviation"], max(map(abs, off)), 12)
        self.assertEqual(self.curves("--dim", 8, "--length", "64k")["smooth_distances"], 1024)

    def test_tables_and_page_say_the_same(self):
        setting = ("--dim", 64, "--base", "10,500000", "--length", 5000)
        got = self.curves(*setting)
        text = self.works("curves", *setting).decode()
        for point, other in zip(got["bases"][0]["curve"], got["bases"][1]["curve"], strict=True):
            if point["distance"] in (1, 4, 16, 64, 256, 1024, 4096, 5000):
                for key, digits in (("mean", 4), ("integral", 4), ("bound", 2)):
                    row = rf"^ +{point['distance']} +{point[key]:.{digits}f} +{other[key]:.{digits}f}$"
                    self.assertRegex(text, re.compile(row, re.M))
        for one, two in zip(got["bases"][0]["smoothness"], got["bases"][1]["smoothness"], strict=True):
            for key in ("roughness", "deviation"):
                self.assertRegex(text, re.compile(rf"^ +{one['dim']} +{one[key]:.4g} +{two[key]:.4g}$", re.M))
        page = self.folder / "page.html"
        self.works("curves", *setting, "--html", "-o", page)
        data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S)
        self.assertEqual(json.loads(data.group(1)), got)
        for part in ("const Explorer", "Chart.js", "Decay curves of plain RoPE"):
            self.assertIn(part, page.read_text())
        self.assertEqual(self.works("curves", *setting, "--json"), json_file(self, setting))
        self.fails(1, "curves", "--html", "-o", self.folder / "no/page.html", says="with -o")

    def test_page_of_docs(self):
        text = (support.SOURCE / "docs/curves.md").read_text(encoding="utf-8")
        rows = re.findall(r"^\| (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", text, re.M)
        got = self.curves("--base", ",".join(row[0] for row in rows))
        self.assertEqual([row[0] for row in rows], ["1", "10", "10000", "500000"])
        for row, b in zip(rows, got["bases"], strict=True):
            roughness = {s["dim"]: s["roughness"] for s in b["smoothness"]}
            for written, dim in zip(row[1:], (8, 128, 1024), strict=True):
                self.assertEqual(f"{roughness[dim]:.{len(written.split('.')[1])}f}", written)
        command, example = re.search(r"^    \$ ropewalk (curves .*)\n((?:    .*\n|\n)*)", text, re.M).groups()
        printed = self.works(*command.split()).decode().splitlines()
        lines = [line[4:] for line in example.rstrip().splitlines()]
        self.assertGreater(len(lines), 70)
        self.assertLessEqual(set(lines), set(printed))

    def test_defaults(self):
        got = self.curves()
        self.assertEqual((got["dim"], got["length"]), (128, 131072))
        self.assertEqual([b["base"] for b in got["bases"]], [10, 10000, 500000])

    def test_bad_input(self):
        for base in ("0", "-1", "0.999", "nan", "inf", "1e400", "1e31", "10,nan"):
            self.fails(2, "curves", f"--base={base}", says="a base is a number from 1 to 1e+30, got")
        self.fails(2, "curves", "--base", "ten", says="--bases")
        self.fails(2, "curves", "--base", "10,100,10", says="--bases names 10 twice")
        self.fails(2, "curves", "--base", ",".join(map(str, range(1, 12))), says="at most 10, got 11")
        for dim in (127, 0, -2, 1, 4098, 1026, 2**40):
            self.fails(2, "curves", "--dim", dim, says=f"an even number from 2 to 1024 is rotated in pairs, got {dim}")
        for length in ("0", "-5", "1000000000000", "2m5", "x"):
            self.fails(2, "curves", "--length", length, says="expected a length in tokens")
        self.fails(2, "curves", "--length", "1k,2k", says="one --length")
        self.fails(2, "curves", "--json", "--html", says="--html")
        self.fails(2, "curves", "model.gguf", says="model.gguf")


def json_file(case, setting):
    path = case.folder / "curves.json"
    case.works("curves", *setting, "--json", "-o", path)
    return path.read_bytes()


if __name__ == "__main__":
    support.main()
