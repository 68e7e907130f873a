"""TOML files as people write them: read with one clear message, and values as they are written."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from services.runtime.errors import UserError

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
MAX_BYTES = 256 << 10
MAX_LINE = 8 << 10
_MEND = "mend that line; nothing was started"


def read_toml(path: Path) -> dict[str, Any]:
    """The file's tables; UserError with line and column for bad syntax, and for an unreadable file."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1).removeprefix(b"\xef\xbb\xbf")
    except FileNotFoundError:
        raise UserError("there is no such configuration file", str(path), "check the path, or leave it out") from None
    except (OSError, ValueError) as e:
        raise UserError(f"the configuration file cannot be read: {e}", str(path), "name a TOML file") from e
    try:
        if len(raw) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES} bytes")
        for number, line in enumerate(raw.split(b"\n"), 1):
            if len(line) > MAX_LINE:  # the parser's work grows with the square of a key's parts
                raise ValueError(f"line {number} is longer than {MAX_LINE} bytes")
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as e:
                raise ValueError(f"not UTF-8 ({e.reason}, at line {number})") from None
        return tomllib.loads(raw.decode("utf-8"))
    except RecursionError:
        raise UserError("the configuration is no TOML of ours: nested too deep", str(path), _MEND) from None
    except ValueError as e:
        raise UserError(f"the configuration is no TOML: {e}", str(path), _MEND) from e


def literal(value: Any) -> str:
    """A setting's value as TOML text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return '"' + _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", escaped) + '"'
    return repr(value)


def value_of(text: str, *, as_text: bool) -> Any:
    """What `text` says as a TOML value, or the text itself; `as_text`: only its quotes are TOML."""
    if as_text and text[:1] not in ("'", '"'):
        return text
    try:
        found = tomllib.loads(f"x = {text}")
    except (ValueError, RecursionError):  # the latter: brackets within brackets
        return text
    return found["x"] if len(found) == 1 else text
