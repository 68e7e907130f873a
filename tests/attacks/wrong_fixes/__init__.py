"""Wrong repairs of the benchmark's programs, as a policy might hand them in: all of them must fail.

Written from the definitions of the problems, one file a program: a line `### what is wrong` before each source.
"""

from pathlib import Path


def _read(path: Path) -> dict[str, str]:
    found = {}
    for section in path.read_text(encoding="utf-8").split("### ")[1:]:
        label, _, source = section.partition("\n")
        found[label] = source.strip("\n") + "\n"
    return found


FIXES: dict[str, dict[str, str]] = {path.stem: _read(path) for path in sorted(Path(__file__).parent.glob("*.txt"))}
"""Name of the program -> what is wrong -> source."""
