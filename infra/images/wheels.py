"""Packs installed libraries into wheels again: a machine that runs Rollstream builds its images without a download.

PYTHON -m infra.images.wheels FOLDER REQUIREMENTS [REQUIREMENT…]

Run by the Python whose packages are taken. Prints the requirements that are not installed there, one a line: those have
to be fetched. Files that no image keeps (see PRUNED in libraries.py) are left out, and nothing is compressed.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import zipfile
from importlib import metadata
from pathlib import Path

from infra.images.libraries import PRUNED, SEARCHED

try:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name
except ImportError:  # pip is there wherever packages were installed, and carries the same library
    from pip._vendor.packaging.requirements import Requirement  # type: ignore[assignment]  # the same, elsewhere
    from pip._vendor.packaging.utils import canonicalize_name  # type: ignore[assignment]  # the same, elsewhere


def wanted(names: list[str]) -> list[Requirement]:
    """Requirements from files (names that end in .txt) and from the command line."""
    lines: list[str] = []
    for name in names:
        lines += Path(name).read_text().splitlines() if name.endswith(".txt") else [name]
    return [Requirement(line) for line in lines if line.strip() and not line.startswith("#")]


def installed(requirement: Requirement) -> metadata.Distribution | None:
    """The distribution that meets a requirement; None where it is not there, too old, or only linked to its source."""
    try:
        found = metadata.distribution(requirement.name)
    except metadata.PackageNotFoundError:
        return None
    linked = '"editable": true' in (found.read_text("direct_url.json") or "")
    fits = requirement.specifier.contains(found.version, prereleases=True)
    return found if fits and not linked and found.files and found.read_text("WHEEL") else None


def closure(asked: list[Requirement]) -> tuple[dict[str, metadata.Distribution], list[str]]:
    """Everything that the requirements lead to, by name, and the requirements that are not met here."""
    found: dict[str, metadata.Distribution] = {}
    missing: list[str] = []
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = list(asked)
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if (name, frozenset(requirement.extras)) in seen:
            continue
        seen.add((name, frozenset(requirement.extras)))
        distribution = installed(requirement)
        if distribution is None:
            missing.append(str(requirement))
            continue
        found[name] = distribution
        for line in distribution.requires or []:
            further = Requirement(line)
            extras = requirement.extras or {""}
            if further.marker is None or any(further.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(further)
    return found, missing


def file_name(distribution: metadata.Distribution) -> str:
    """The wheel's name, whose tags are those that the distribution came with."""
    tags = [
        line[5:].strip() for line in (distribution.read_text("WHEEL") or "").splitlines() if line.startswith("Tag: ")
    ]
    parts = [".".join(dict.fromkeys(column)) for column in zip(*(tag.split("-") for tag in tags), strict=True)]
    name = canonicalize_name(distribution.metadata["Name"]).replace("-", "_")
    return f"{name}-{distribution.version}-{'-'.join(parts)}.whl"


def kept(path: str) -> bool:
    """Whether an image could ever load the file."""
    if path.startswith("..") or path.endswith(".pyc"):
        return False
    parts = path.split("/")
    if any(part in SEARCHED for part in parts[:-1]):
        return False
    heads = ["/".join(parts[: n + 1]) for n in range(len(parts))]
    return not any(
        fnmatch.fnmatchcase(head, pattern) and head.count("/") == pattern.count("/")
        for pattern in PRUNED
        for head in heads
    )


def pack(distribution: metadata.Distribution, folder: Path) -> str:
    """Write the wheel unless it is there; returns its name."""
    name = file_name(distribution)
    target = folder / name
    if not target.exists():
        building = target.with_suffix(".building")
        with zipfile.ZipFile(building, "w", zipfile.ZIP_STORED, strict_timestamps=False) as out:
            for file in distribution.files or []:
                if kept(file.as_posix()) and Path(str(file.locate())).is_file():
                    out.write(str(file.locate()), file.as_posix())
        building.rename(target)
    return name


def main() -> None:
    """Pack what is installed, drop older wheels, and print what is missing."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("requirements", nargs="+")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    found, missing = closure(wanted(asked.requirements))
    packed = {pack(distribution, asked.folder) for distribution in found.values()}
    if not missing:
        for path in asked.folder.glob("*.whl"):
            if path.name not in packed:
                path.unlink()
    print("\n".join(missing))
    print(f"   {len(packed)} of them packed from {sys.prefix}", file=sys.stderr)


if __name__ == "__main__":
    main()
