"""TOML files as people write them: read with one clear message, and values as they are written."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from services.runtime.errors import UserError

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def read_toml(path: Path) -> dict[str, Any]:
    """The file's tables; UserError with line and column for bad syntax, and for an unreadable file."""
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise UserError("there is no such configuration file", str(path), "check the path, or leave it out") from None
    except (OSError, UnicodeDecodeError) as e:
        raise UserError(f"the configuration file cannot be read: {e}", str(path)) from e
    except tomllib.TOMLDecodeError as e:
        raise UserError(f"the configuration is no TOML: {e}", str(path), "mend that line; nothing was started") from e


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
    except tomllib.TOMLDecodeError:
        return text
    return found["x"] if len(found) == 1 else text
