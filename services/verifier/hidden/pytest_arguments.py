"""How hidden tests are run by pytest on either side: no plugin, configuration or conftest but the verifier's own."""

from __future__ import annotations

ENVIRONMENT = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
INI = "trusted.ini"
INI_TEXT = "[pytest]\n"

_OFF = (
    "cacheprovider", "faulthandler", "junitxml", "pastebin", "stepwise", "doctest", "unraisableexception",
    "threadexception", "setuponly", "setupplan", "nose", "legacypath",
)  # fmt: skip


def arguments(root: str, what: list[str]) -> list[str]:
    """Command line for the tests `what` (paths or ids) below the folder `root`, which holds `INI`.

    Plain asserts: rewriting costs time, and comparing two values of the candidate's for a message could cost all of it.
    """
    return [
        *(part for name in _OFF for part in ("-p", "no:" + name)), "--noconftest", "-c", f"{root}/{INI}", "--rootdir",
        root, "--import-mode=importlib", "-o", "addopts=", "--assert=plain", "--tb=native", "-s", "-q", *what,
    ]  # fmt: skip
