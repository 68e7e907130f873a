"""Where the function under repair lives in a tree of files."""

from __future__ import annotations

from collections.abc import Mapping


class NoEntry(ValueError):
    """The tree and the entry name do not say which function to call."""


def locate(files: Mapping[str, str], entry: str) -> tuple[str, str, str]:
    """(path, module, function) of an entry: "module:function", or "function" in the tree's only Python file."""
    module, colon, function = entry.rpartition(":")
    sources = [path for path in files if path.endswith(".py")]
    if not colon:
        if len(sources) != 1:
            raise NoEntry(f"entry {entry!r} names no module and the tree has {len(sources)} Python files")
        path = sources[0]
        return path, path.removesuffix(".py").replace("/", "."), function
    for path in (module.replace(".", "/") + ".py", module.replace(".", "/") + "/__init__.py"):
        if path in files:
            return path, module, function
    raise NoEntry(f"entry {entry!r}: the tree has no module {module!r}")
