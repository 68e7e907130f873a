"""Which paths a candidate may change: a grammar of names, the fixture's globs, and names that are never allowed."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterable, Mapping

MAX_PATH_CHARS = 200
MAX_DEPTH = 16
_COMPONENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")

# They configure an interpreter, a test runner or a build. Compared without case.
DENIED_NAMES = frozenset(
    """setup.py setup.cfg pyproject.toml pytest.ini pytest.toml tox.ini tox.toml noxfile.py pyvenv.cfg makefile
    gnumakefile dockerfile jenkinsfile justfile manifest.in pipfile entry_points.txt package.json package-lock.json
    environment.yml""".split()  # noqa: SIM905 - a list of names reads better as text
)
DENIED_ENDINGS = (
    *(".pth", "._pth", ".pyc", ".pyo", ".so", ".pyd", ".dll", ".dylib", ".egg-link", ".ini", ".cfg", ".lock"),
    *(".egg", ".whl", ".zip", ".pyz"),
)
DENIED_FOLDERS = frozenset({"__pycache__", "site-packages", "dist-packages", "node_modules"})
# Modules that interpreter or test runner import by themselves: neither as a file nor as a package.
DENIED_MODULES = frozenset({"conftest", "sitecustomize", "usercustomize", "__main__"})
# Devices on another system, where a checkout of the same tree would write to them.
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?\Z")
_REQUIREMENTS = re.compile(r"(?:requirements|constraints)[a-z0-9_-]*\.(?:txt|in)\Z")

_TEST = re.compile(r"(?:tests?|testing|test_.*|.*_tests?)(?:\.[a-z0-9]+)?\Z")

# What a jail's interpreter or the trusted side can import besides the standard library. A fixed list and not what this
# machine happens to have installed, so that one diff gets one answer everywhere.
INSTALLED = frozenset(
    """pytest _pytest pluggy iniconfig packaging pygments py exceptiongroup tomli typing_extensions hypothesis
    _hypothesis_pytestplugin attr attrs sortedcontainers xdist execnet pytest_timeout coverage pip setuptools wheel
    pkg_resources _distutils_hack distutils numpy scipy pandas torch test tests schemas services infra worker""".split()  # noqa: SIM905
)
LIBRARY = frozenset(name.casefold() for name in (*sys.stdlib_module_names, *sys.builtin_module_names, *INSTALLED))


def name_fault(path: str) -> str | None:
    """Why `path` is no legal relative path of ours; None when it is one."""
    components = path.split("/")
    if len(path) > MAX_PATH_CHARS or len(components) > MAX_DEPTH:
        return "path_too_long"
    if not all(_COMPONENT.match(part) and not part.endswith(".") for part in components):
        return (
            "path_grammar"  # covers absolute, empty, ".", "..", hidden, quoted, backslash, control and non-ASCII names
        )
    folded = [part.casefold() for part in components]
    if any(
        part in DENIED_FOLDERS
        or part.endswith((".dist-info", ".egg-info"))
        or part.split(".", 1)[0] in DENIED_MODULES
        or _DEVICE.match(part)
        for part in folded
    ):
        return "path_denied"
    base = folded[-1]
    if base in DENIED_NAMES or base.endswith(DENIED_ENDINGS) or _REQUIREMENTS.match(base):
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
    """Whether a glob of the fixture admits `path`: `*` and `?` stay inside one folder, `**/` crosses folders.

    What is no Python file needs a glob that says its ending, and a test one that speaks of tests: `data/*` admits
    `data/x.py` only, `data/*.txt` texts too; `**/*.py` admits no `tests/x.py` and no `test_x.py`.
    """
    tests = any(_TEST.match(part) for part in path.casefold().split("/"))
    return any(
        _pattern(glob).match(path)
        and (path.endswith(".py") or _says_ending(glob))
        and (not tests or "test" in glob.casefold())
        for glob in globs
    )


def _says_ending(glob: str) -> bool:
    last = glob.rsplit("/", 1)[-1]
    tail = re.split(r"[*?]", last)[-1]
    return tail == last or "." in tail


def addition_fault(path: str, base: Mapping[str, str], tree: Mapping[str, str]) -> str | None:
    """Why a new file may not appear beside the fixture's files and those of the same diff; None when it may.

    Files that the diff deletes still count: a file that becomes a folder, or another case of itself, is refused.
    """
    folded = path.casefold()
    for other in (name.casefold() for files in (base, tree) for name in files):
        if other == folded or other.startswith(folded + "/") or folded.startswith(other + "/"):
            return "path_collision"
    return _import_fault(path, base)


def _import_fault(path: str, base: Mapping[str, str]) -> str | None:
    """Whether a new file would be imported in another module's place."""
    parts = path.split("/")
    for depth, part in enumerate(parts):
        folder = "".join(parent + "/" for parent in parts[:depth])
        last = depth == len(parts) - 1
        if last and not part.endswith(".py"):
            return None
        name = part.removesuffix(".py")
        if name == "__init__":
            # It would turn a plain folder of the fixture into a package, and run before everything in it.
            return "changes_package" if any(other.startswith(folder) for other in base) else None
        is_module = f"{folder}{name}.py" in base
        is_package = any(other.startswith(f"{folder}{name}/") for other in base)
        if is_package if last else is_module:
            return "shadows_module"
        # Only a folder that is no package can be where imports start ("src" layouts).
        importable = not folder or f"{folder}__init__.py" not in base
        if importable and not is_module and not is_package and name.casefold() in LIBRARY:
            return "shadows_library"
    return None
