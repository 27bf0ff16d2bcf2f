#!/usr/bin/env python3
"""What a release is made of, as CycloneDX 1.6: Debian's packages that it is built from, with the versions that are installed
here, what is copied in, and what the Python package needs.

usage: sbom.py OUT      times from SOURCE_DATE_EPOCH; runs in the environment of scripts/release-requirements.txt
"""

import datetime
import os
import pathlib
import re
import subprocess
import sys
import tomllib
import uuid

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation import make_schemabased_validator
from packageurl import PackageURL

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOLS = {"g++", "cmake", "ninja-build", "pkg-config", "ocl-icd-opencl-dev"}  # build it, and are not in it
COPIED = (("wonderwords", "src/eval/ruler/words"), ("ggml", "src/io/ggml_grids.h"))  # both MIT


def said(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def debian():
    """A component for each source package of which a library or header is linked or copied in."""
    names = set(said(ROOT / "scripts" / "deps.sh", "--list", "build").split()) - TOOLS | {"libstdc++6", "libgomp1"}
    sources = {}
    for name in sorted(names):
        facts = said("dpkg-query", "-W", "-f=${Version} ${source:Package} ${source:Version}", name)
        version, source, source_version = facts.split()
        sources.setdefault((source, source_version), []).append(f"{name} {version}")
    for (source, version), packages in sorted(sources.items()):
        yield Component(name=source, version=version, type=ComponentType.LIBRARY, bom_ref=f"deb:{source}",
                        description="of Debian: " + ", ".join(packages),
                        purl=PackageURL("deb", "debian", source, version, {"arch": "source"}))


def copied():
    for name, where in COPIED:
        yield Component(name=name, type=ComponentType.LIBRARY, bom_ref=f"copied:{name}", description=f"copied into {where}",
                        licenses=[LicenseExpression("MIT")])


def python_packages():
    with open(ROOT / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    for requirement in project["dependencies"]:
        name, wanted = re.fullmatch(r"([\w-]+)(.*)", requirement).groups()
        yield Component(name=name, type=ComponentType.LIBRARY, bom_ref=f"pypi:{name}", description=f"of the wheel: {wanted}",
                        purl=PackageURL("pypi", None, name))


def main(out):
    version = re.search(r"project\(ropewalk VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))[1]
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    licence = LicenseExpression("Apache-2.0")
    product = Component(name="ropewalk", version=version, type=ComponentType.APPLICATION, bom_ref="ropewalk", licenses=[licence])
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"ropewalk {version} {epoch}"))
    bom.metadata.timestamp = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc)
    bom.metadata.component = product
    components = [*debian(), *copied(), *python_packages()]
    for component in components:
        bom.components.add(component)
    bom.register_dependency(product, components)
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1)
    wrong = make_schemabased_validator(OutputFormat.JSON, SchemaVersion.V1_6).validate_str(text)
    if wrong:
        sys.exit(f"sbom.py: {wrong}")
    pathlib.Path(out).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
