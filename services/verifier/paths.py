"""Which paths a candidate may change: a grammar of names, the fixture's globs, and names that are never allowed."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterable, Mapping

MAX_PATH_CHARS = 200
_COMPONENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")

# They configure an interpreter, a test runner or a build. Compared without case.
DENIED_NAMES = frozenset(
    """conftest.py sitecustomize.py usercustomize.py setup.py setup.cfg pyproject.toml pytest.ini tox.ini noxfile.py
    pyvenv.cfg makefile gnumakefile dockerfile manifest.in requirements.txt pipfile pipfile.lock poetry.lock uv.lock
    entry_points.txt""".split()  # noqa: SIM905 - a list of names reads better as text
)
DENIED_ENDINGS = (".pth", ".pyc", ".pyo", ".so", ".pyd", ".dll", ".egg-link", ".ini", ".cfg", ".lock", ".egg", ".whl")
DENIED_FOLDERS = frozenset({"__pycache__", "site-packages", "dist-packages", "node_modules"})


def name_fault(path: str) -> str | None:
    """Why `path` is no legal relative path of ours; None when it is one."""
    if len(path) > MAX_PATH_CHARS:
        return "path_too_long"
    components = path.split("/")
    if not all(_COMPONENT.match(part) and not part.endswith(".") for part in components):
        return (
            "path_grammar"  # covers absolute, empty, ".", "..", hidden, quoted, backslash, control and non-ASCII names
        )
    if any(
        part.casefold() in DENIED_FOLDERS or part.casefold().endswith((".dist-info", ".egg-info"))
        for part in components
    ):
        return "path_denied"
    base = components[-1].casefold()
    if base in DENIED_NAMES or base.endswith(DENIED_ENDINGS):
        return "path_denied"
    return None


@functools.lru_cache(maxsize=1024)
def _pattern(glob: str) -> re.Pattern[str]:
    parts = []
    for component in glob.split("/"):
        if component == "**":
            parts.append("(?:[^/]+/)*")
        else:
            text = re.escape(component).replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
            parts.append(text + "/")
    return re.compile("".join(parts).removesuffix("/") + r"\Z")


def allowed(path: str, globs: Iterable[str]) -> bool:
    """Whether a glob of the fixture admits `path`: `*` and `?` stay inside one folder, `**/` crosses folders."""
    return any(_pattern(glob).match(path) for glob in globs)


def addition_fault(path: str, tree: Mapping[str, str]) -> str | None:
    """Why a new file may not appear beside `tree`; None when it may."""
    folded = path.casefold()
    for other in tree:
        if other.casefold() == folded:
            return "path_collision"
        if other.startswith(path + "/") or path.startswith(other + "/"):
            return "path_collision"
    top = path.split("/", 1)[0].removesuffix(".py")
    tops = {name.split("/", 1)[0].removesuffix(".py") for name in tree}
    if top not in tops and (top in sys.stdlib_module_names or top in sys.builtin_module_names):
        return "shadows_library"
    return None
