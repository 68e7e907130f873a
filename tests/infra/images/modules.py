"""Follows imports through our own source: what a process that starts at a module can ever load."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

from tests.infra.images.dockerfile import ROOT

OURS = ("schemas", "services", "infra")


def path_of(module: str) -> Path | None:
    """The file of one of our modules; None for what is none."""
    words = module.split(".")
    if words[0] not in OURS or not all(word.isidentifier() for word in words):
        return None
    base = ROOT.joinpath(*words)
    return next((c for c in (base.with_name(f"{base.name}.py"), base / "__init__.py") if c.is_file()), None)


@functools.cache
def imports(file: Path, function: str = "") -> frozenset[str]:
    """Modules that a file, or one function of it, names in imports; `a.b` for `from a import b` where that is a module.

    Imports for the type checker alone do not count. Modules started by name (python -m) do.
    """
    tree: ast.AST = ast.parse(file.read_text())
    if function:
        tree = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == function)
    found: set[str] = set()
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {
                f"{node.module}.{a.name}" for a in node.names if path_of(f"{node.module}.{a.name}")
            }
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and path_of(node.value):
            found.add(node.value)
        waiting += ast.iter_child_nodes(node)
    return frozenset(found)


def reached(*modules: str) -> tuple[set[str], set[str]]:
    """Our modules that these lead to, by late imports too, and the top-level names of all others."""
    ours: set[str] = set()
    others: set[str] = set()
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if module in ours:
            continue
        file = path_of(module)
        if file is None:
            if module.split(".")[0] not in OURS:
                others.add(module.split(".")[0])
            continue
        ours.add(module)
        parents = [module.rsplit(".", n)[0] for n in range(1, module.count(".") + 1)]
        waiting += [*imports(file), *parents]
    return ours, others
