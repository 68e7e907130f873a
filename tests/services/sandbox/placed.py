"""Run as a script: starts a sandbox service's jails once, and says "ok" or what a person is told."""

from __future__ import annotations

import os
import sys

from services.runtime.errors import UserError
from services.runtime.jail.launcher import JailHost
from tests.contract.sandbox.asking import ask


def main(*changes: str) -> None:
    """`changes`: `umask=077`, or names of the environment: `HOME=` takes one away."""
    for change in changes:
        name, _, value = change.partition("=")
        if name == "umask":
            os.umask(int(value, 8))
        elif value:
            os.environ[name] = value
        else:
            os.environ.pop(name, None)
    try:
        with JailHost(2) as host:
            host.check()
            uses = "import json, email.mime.text, sqlite3\ndef f(a): return a + 1"
            assert ask(host, uses, 1).value == 2
    except UserError as error:
        print(error)
    else:
        print("ok")


if __name__ == "__main__":
    main(*sys.argv[1:])
