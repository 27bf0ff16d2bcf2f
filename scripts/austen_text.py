#!/usr/bin/env python3
"""Writes "Pride and Prejudice" as plain text, the text of the SmolLM2 results, from Debian's r-cran-janeaustenr (the novels as
an R data set; Project Gutenberg's edition). Neither R nor root is needed: apt-get fetches the package, nothing is installed.

usage: austen_text.py FILE        writes FILE unless it is there already; the SHA-256 decides
"""

import hashlib
import lzma
import pathlib
import struct
import subprocess
import sys
import tempfile
import zlib

NAME, SHA256 = "prideprejudice", "dfc684d4f857fa938268f9ab9c5567b64bd0691251eca959644adeabe6287a4d"


class Serialized:
    """What a lazy-load database of R holds, in R's binary XDR format: lists, numbers and strings."""

    def __init__(self, data):
        self.data, self.at, self.symbols = data, 0, []
        if self.take(2) != b"X\n":
            sys.exit("austen_text.py: expected R's binary XDR format")
        version = self.integers(3)[0]
        if version == 3:
            self.take(self.integers(1)[0])  # the name of the encoding

    def take(self, count):
        self.at += count
        return self.data[self.at - count:self.at]

    def integers(self, count):
        return struct.unpack(f">{count}i", self.take(4 * count))

    def value(self):
        flags, = self.integers(1)
        kind = flags & 255
        if kind == 254:  # NULL
            return None
        if kind == 255:  # a symbol that was there before
            return self.symbols[(flags >> 8) - 1]
        if kind == 1:
            self.symbols.append(self.value())
            return self.symbols[-1]
        if kind == 2:  # pairlist, for attributes
            pairs = []
            if flags & 512:
                self.value()
            name = self.value() if flags & 1024 else None
            pairs.append((name, self.value()))
            return pairs + (self.value() or [])
        if kind == 9:  # one string
            length, = self.integers(1)
            return None if length < 0 else self.take(length).decode("utf-8")
        length, = self.integers(1)
        if kind in (10, 13):
            out = self.integers(length)
        elif kind == 14:
            out = struct.unpack(f">{length}d", self.take(8 * length))
        elif kind in (16, 19):
            out = [self.value() for _ in range(length)]
        else:
            sys.exit(f"austen_text.py: an R value of type {kind} is not read here")
        names = dict(self.value() or []).get("names") if flags & 512 else None
        return dict(zip(names, out)) if names else out


def unpacked(block):
    """Of four bytes of length, then Z and a raw LZMA2 or xz stream, or a zlib stream."""
    if block[4:5] != b"Z":
        return zlib.decompress(block[4:])
    raw = [{"id": lzma.FILTER_LZMA2, "preset": 6}]
    return lzma.decompress(block[5:], format=lzma.FORMAT_RAW, filters=raw)


def novel(folder):
    index = Serialized(zlib.decompress((folder / "Rdata.rdx").read_bytes(), 31)).value()
    start, length = index["variables"][NAME]
    data = (folder / "Rdata.rdb").read_bytes()[start:start + length]
    return "".join(line + "\n" for line in Serialized(unpacked(data)).value())


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[1])
    if out.exists() and hashlib.sha256(out.read_bytes()).hexdigest() == SHA256:
        return
    with tempfile.TemporaryDirectory() as work:
        subprocess.run(["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", "r-cran-janeaustenr"], cwd=work,
                       check=True)
        package, = pathlib.Path(work).glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", package, work], check=True)
        data, = pathlib.Path(work).glob("usr/lib/R/site-library/janeaustenr/data")
        text = novel(data).encode("utf-8")
    found = hashlib.sha256(text).hexdigest()
    if found != SHA256:
        sys.exit(f"austen_text.py: {NAME} has SHA-256 {found}, expected {SHA256}")
    out.write_bytes(text)


if __name__ == "__main__":
    main()
