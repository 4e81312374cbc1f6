"""The bill of materials in CycloneDX 1.6: `python -m supply_chain.sbom FILE`, or `make sbom`.

It lists every locked Python package and jar with its package URL and checksums. A vulnerability scanner reads
it, and so does whoever asks later whether a release contained a certain version.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from cli.stack.jars.lock import Jar, read_lock
from supply_chain.locked import PYTHON_LOCK, ROOT, Package, purl_of, read_packages

USE = "baton:use"
"""The property of a jar that says what loads it: `kafka` or `spark`."""


def bill_of_materials() -> str:
    """The bill as JSON; the serial number and the time are new in each."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bom = Bom()
    bom.metadata.component = Component(
        type=ComponentType.APPLICATION,
        name=project["name"],
        version=project["version"],
        bom_ref=project["name"],
        description=project["description"],
    )
    parts = [
        *map(_python_component, read_packages(PYTHON_LOCK.read_text())),
        *map(_jar_component, read_lock()),
    ]
    bom.components.update(parts)
    bom.register_dependency(bom.metadata.component, parts)
    return JsonV1Dot6(bom).output_as_string(indent=2)


def _python_component(package: Package) -> Component:
    # the checksums are those of its files for several platforms, so none is the checksum of the component
    files = ExternalReference(
        type=ExternalReferenceType.DISTRIBUTION,
        url=XsUri(f"https://pypi.org/project/{package.name}/{package.version}/#files"),
        hashes=map(_sha256, package.sha256),
    )
    return Component(
        type=ComponentType.LIBRARY,
        name=package.name,
        version=package.version,
        bom_ref=package.purl,
        purl=PackageURL.from_string(package.purl),
        external_references=[files],
    )


def _jar_component(jar: Jar) -> Component:
    purl = purl_of(jar)
    return Component(
        type=ComponentType.LIBRARY,
        group=jar.group,
        name=jar.artifact,
        version=jar.version,
        # Kafka and Spark may use the same jar
        bom_ref=f"{purl}#{jar.use}",
        purl=PackageURL.from_string(purl),
        hashes=[_sha256(jar.sha256)],
        properties=[Property(name=USE, value=jar.use)],
    )


def _sha256(digest: str) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=digest)


def main(arguments: list[str]) -> int:
    """Writes the bill to the file that is the only argument. Returns the exit code."""
    if len(arguments) != 1:
        print("usage: python -m supply_chain.sbom FILE", file=sys.stderr)
        return 2
    file = Path(arguments[0])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(bill_of_materials())
    print(f"the bill of materials is in {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
