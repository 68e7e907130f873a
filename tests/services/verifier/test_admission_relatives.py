# ruff: noqa: E501 - attacks are read as one line each
"""Relatives of the P-rows that the attack list does not name: names, shadowing, hunks, characters, no-ops in disguise."""

import sys
import unicodedata

import pytest

from services.patch import source
from services.patch.admission import MAX_DIFF_BYTES, Refused, admit
from tests.services.verifier.test_admission import ALL, BASE, GOOD, new_file, refused

TREE = {
    **BASE,
    "src/app/__init__.py": "",
    "src/app/core.py": "V = 1\n",
    "src/plain/one.py": "V = 1\n",
    "lib.py": "protected\n",
    "json.py": "theirs = 1\n",
    "data/notes.txt": "a\n",
}
DELETE_UTIL = "--- a/pkg/util.py\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-X = 1\n-Y = 2\n"


def replaced(line: str, path: str = "calc.py") -> str:
    return f"--- a/{path}\n+++ b/{path}\n@@ -2 +2 @@\n-    return a - b\n+{line}\n"


NAMES = {
    "path_grammar": [
        "pkg/x.py.", "pkg/x.py ", "pkg /x.py", "pkg./x.py", "pkg/..", "...", "pkg/.../x.py", "C:/x.py", "c:x.py", "pkg/x.py:stream",
        "//host/share/x.py", "~/x.py", "-x.py", "pkg/-rf", "pkg/x\t.py", "pkg/x\x85.py", "pkg/x\u2028.py", "pkg/x\u2029.py", "pkg/\ufeffx.py",
        "pkg/\u0661.py", "pkg/\uff11.py", "pkg\u2215x.py", "pkg\uff0fx.py", "\u2025/x.py", "pkg/\uff0e\uff0e/x.py", "pkg/.g\u0131t/x.py", ".\u017fitecustomize.py", "conftest\u200b.py",
        "\u212aonftest.py", "pkg/x.p\u0443", "pkg/%2e%2e/x.py", "pkg/$HOME.py", "pkg/`id`.py", "pkg/a;b.py", "pkg/a*b.py", "pkg/a?b.py", "GIT~1/x", ".gitignore", ".github/workflows/x.py",
        ".", "", "/", "pkg/", "/pkg/x.py", "pkg//x.py", "pkg/.hidden.py", ".pytest.ini", ".python-version", "x.py\r", '"x.py"', "'x.py'",
    ],
    "path_denied": [
        "con.py", "pkg/NUL.py", "pkg/aux", "aux/x.py", "prn.txt.py", "COM1.py", "pkg/lpt9.tar.py", "conftest/__init__.py", "pkg/SiteCustomize/x.py", "usercustomize/__init__.py",
        "__main__.py", "pkg/__main__.py", "conftest.abc.py", "python311._pth", "pkg/x.PTH", "x.egg-info/PKG-INFO", "X.DIST-INFO/RECORD", "pkg/__PYCACHE__/x.py", "requirements-dev.txt", "constraints.txt",
        "pytest.toml", "pkg/tox.toml", "poetry.lock", "package.json", "Jenkinsfile", "dockerfile", "x.cpython-311-x86_64-linux-gnu.so", "x.pyz", "x.zip", "node_modules/x.py",
    ],
    "path_too_long": ["pkg/" + "x" * 300 + ".py", "/".join(["a"] * 60) + ".py", "a/" * 20_000 + "x.py"],
    "shadows_library": [
        "os.py", "JSON2/__init__.py".replace("JSON2", "re"), "Typing.py", "_collections_abc.py", "encodings/utf_8.py", "pytest.py", "_pytest/__init__.py", "hypothesis/x.py", "typing_extensions.py",
        "src/pytest/__init__.py", "src/random.py", "src/plain/math.py", "new/deep/collections.py", "services/x.py", "schemas/__init__.py", "numpy.py", "worker.py", "__future__.py", "builtins.py", "posix.py", "antigravity.py",
    ],
    "shadows_module": ["lib/__init__.py", "lib/x.py", "pkg.py", "src/app.py", "calc/__init__.py", "src/app/core/__init__.py", "data.py"],
    "changes_package": ["pkg/__init__.py", "__init__.py", "src/plain/__init__.py", "src/__init__.py"],
    "path_collision": ["PKG/util.py/x.py".lower(), "Calc.py", "pkg/UTIL.py", "LIB.PY/x.py", "pkg/Util.PY/x.py"],
    "path_not_allowed": ["pkg/x.txt", "x", "pkg/x.pyw", "pkg/x.pyi", "pkg/x.py.txt", "pkg/py", "pkg/x.md"],
}  # fmt: skip


@pytest.mark.parametrize(("reason", "path"), [(reason, path) for reason, paths in NAMES.items() for path in paths])
def test_names_are_refused_by_kind_even_where_every_glob_admits_them(reason: str, path: str) -> None:
    assert refused(new_file(path), TREE, ALL) == reason


@pytest.mark.parametrize(
    "path", ["src/app/types.py", "pkg/extra.py", "fresh/__init__.py", "fresh/sub/part.py", "src/app/json/reader.py", "pkg/x.y.py"],
)  # fmt: skip
def test_ordinary_new_modules_are_admitted(path: str) -> None:
    assert admit(new_file(path), TREE, ALL).changed == (path,)


def test_a_fixture_that_names_an_ending_gets_it() -> None:
    assert admit(new_file("data/more.txt"), TREE, ("data/*.txt",)).changed == ("data/more.txt",)
    assert admit("--- a/data/notes.txt\n+++ b/data/notes.txt\n@@ -1 +1 @@\n-a\n+b\n", TREE, ("data/notes.txt",)).changed
    assert refused(new_file("data/more.txt"), TREE, ("data/*",)) == "path_not_allowed"


@pytest.mark.parametrize(
    "path", ["tests/new.py", "pkg/test_new.py", "pkg/new_test.py", "test/x.py", "pkg/Testing/x.py"]
)
def test_tests_need_a_glob_that_speaks_of_them(path: str) -> None:
    assert refused(new_file(path), TREE, ("**/*.py", "*.py")) == "path_not_allowed"
    assert (
        refused("--- a/tests/test_calc.py\n+++ b/tests/test_calc.py\n@@ -1 +1 @@\n-ok\n+no\n", TREE, ALL)
        == "path_not_allowed"
    )
    assert refused("--- a/tests/test_calc.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-ok\n", TREE, ALL) == "path_not_allowed"
    assert admit(new_file("tests/new.py"), TREE, ("tests/*.py",)).changed
    for ordinary in ("pkg/contest.py", "pkg/latest.py", "pkg/attestation.py"):
        assert admit(new_file(ordinary), TREE, ALL).changed


def test_a_shadowing_file_of_the_fixture_stays_editable() -> None:
    diff = "--- a/json.py\n+++ b/json.py\n@@ -1 +1 @@\n-theirs = 1\n+theirs = 2\n"
    assert admit(diff, TREE, ALL).changed == ("json.py",)


DIFFS = {
    "both sides null": ("--- /dev/null\n+++ /dev/null\n@@ -0,0 +1 @@\n+x\n", "grammar"),
    "null with prefix": ("--- a//dev/null\n+++ b/calc.py\n@@ -0,0 +1 @@\n+x\n", "path_grammar"),
    "two cases of one new file": (new_file("pkg/a.py") + new_file("pkg/A.py"), "path_collision"),
    "new file below a new file": (new_file("pkg/a.py") + new_file("pkg/a.py/b.py"), "path_collision"),
    "new file above a new one": (new_file("pkg/a.py/b.py") + new_file("pkg/a.py"), "path_collision"),
    "file that becomes a folder": (DELETE_UTIL + new_file("pkg/util.py/x.py"), "path_collision"),
    "rename by case": (DELETE_UTIL + new_file("pkg/Util.py"), "path_collision"),
    "delete and add again": (DELETE_UTIL + new_file("pkg/util.py"), "twice"),
    "delete and edit": (DELETE_UTIL + "--- a/pkg/util.py\n+++ b/pkg/util.py\n@@ -1 +1 @@\n-X = 1\n+X = 2\n", "twice"),
    "same new file twice": (new_file("pkg/a.py") + new_file("pkg/a.py", "x = 2\n"), "twice"),
    "new name for a deletion": (DELETE_UTIL.replace("+++ /dev/null", "+++ b//dev/null"), "path_grammar"),
    "overflowing start": (GOOD.replace("-1,2", "-99999999999999999999,2"), "grammar"),
    "large start": (GOOD.replace("-1,2", "-9999999,2"), "context"),
    "overflowing count": (GOOD.replace("-1,2", "-1,18446744073709551616"), "grammar"),
    "large count": (GOOD.replace("-1,2", "-1,9999999"), "grammar"),
    "negative": (GOOD.replace("-1,2", "--1,2"), "grammar"),
    "signed": (GOOD.replace("-1,2", "-+1,2"), "grammar"),
    "leading zero": (GOOD.replace("-1,2", "-01,2"), "grammar"),
    "start zero": (GOOD.replace("-1,2", "-0,2"), "context"),
    "unicode digits": (GOOD.replace("-1,2", "-\u0661,\u0662"), "grammar"),
    "full-width digits": (GOOD.replace("-1,2", "-\uff11,2"), "grammar"),
    "empty hunk": ("--- a/calc.py\n+++ b/calc.py\n@@ -1,0 +1,0 @@\n", "grammar"),
    "hunk of context only": ("--- a/calc.py\n+++ b/calc.py\n@@ -1 +1 @@\n def add(a, b):\n", "grammar"),
    "empty hunk behind a real one": (GOOD + "@@ -2,0 +2,0 @@\n", "grammar"),
    "overlapping hunks": (GOOD + "@@ -2 +2 @@\n-    return a - b\n+    return b + a\n", "context"),
    "hunks in reverse": ("--- a/pkg/util.py\n+++ b/pkg/util.py\n@@ -2 +2 @@\n-Y = 2\n+Y = 3\n@@ -1 +1 @@\n-X = 1\n+X = 3\n", "context"),
    "combined diff": (GOOD.replace("@@ -1,2 +1,2 @@", "@@@ -1,2 -1,2 +1,2 @@@"), "grammar"),
    "header without hunk": ("--- a/calc.py\n+++ b/calc.py\n", "grammar"),
    "header then another": ("--- a/calc.py\n+++ b/calc.py\n" + GOOD, "grammar"),
    "hunk without header": ("@@ -1 +1 @@\n-x\n+y\n", "grammar"),
    "headers swapped": ("+++ b/calc.py\n--- a/calc.py\n@@ -1 +1 @@\n-x\n+y\n", "grammar"),
    "time stamp behind a name": (GOOD.replace("a/calc.py\n", "a/calc.py\t2024-01-01\n"), "path_grammar"),
    "blank line between files": (GOOD + "\n" + new_file("pkg/a.py"), "grammar"),
    "context line cut to nothing": (GOOD.replace(" def add", "def add"), "grammar"),
    "no newline marker at the start": ("\\ No newline at end of file\n" + GOOD, "grammar"),
    "no newline marker behind the header": (GOOD.replace("@@\n", "@@\n\\ No newline at end of file\n"), "grammar"),
    "no newline marker in the middle": (GOOD.replace(" def add(a, b):\n", " def add(a, b):\n\\ No newline at end of file\n"), "context"),
    "no newline marker twice": (GOOD + "\\ No newline at end of file\n" * 2, "grammar"),
    "no newline marker in other words": (GOOD + "\\ Kein Zeilenumbruch\n", "grammar"),
    "no newline inside": ("--- a/calc.py\n+++ b/calc.py\n@@ -1 +1,2 @@\n def add(a, b):\n+    x\n\\ No newline at end of file\n", "context"),
    "final newline missing": (GOOD[:-1], "grammar"),
    "carriage returns throughout": (GOOD.replace("\n", "\r\n"), "path_grammar"),
    "carriage return alone": (GOOD.replace("\n", "\r"), "grammar"),
    "unicode newlines": (GOOD.replace("\n", "\u2028"), "grammar"),
    "byte order mark before": ("\ufeff" + GOOD, "grammar"),
    "only unicode spaces": ("\u2028\u00a0\x85\n", "no_change"),
    "submodule short form": ("Subproject commit 0000000000000000000000000000000000000000\n", "grammar"),
    "mode in the index line": ("diff --git a/calc.py b/calc.py\nindex 0123abcd..4567cdef 120000\n" + GOOD, "grammar"),
    "similarity": ("diff --git a/calc.py b/calc.py\nsimilarity index 90%\n" + GOOD, "grammar"),
    "new mode for an edit": ("diff --git a/calc.py b/calc.py\nnew file mode 100644\n" + GOOD, "grammar"),
    "deleted mode for an edit": ("diff --git a/calc.py b/calc.py\ndeleted file mode 100644\n" + GOOD, "grammar"),
    "git line of three names": ("diff --git a/calc.py b/calc.py b/conftest.py\n" + GOOD, "grammar"),
    "quoted names": (GOOD.replace("a/calc.py", '"a/calc.py"'), "grammar"),
    "mail around it": ("From 0 Mon Sep 17\nSubject: x\n\n---\n" + GOOD, "grammar"),
    "fence around it": ("```diff\n" + GOOD + "```\n", "grammar"),
    "context diff": ("*** a/calc.py\n--- b/calc.py\n", "grammar"),
    "ed script": ("2c\n    return a + b\n.\nw\n", "grammar"),
    "many tiny files": ("".join(new_file(f"pkg/f{n}.py") for n in range(200)), "too_many_files"),
    "one large line": (new_file("pkg/a.py", "x = '" + "y" * MAX_DIFF_BYTES + "'\n"), "diff_too_large"),
    "multi-byte size": (new_file("pkg/a.py", "x = '" + "\u20ac" * (MAX_DIFF_BYTES // 3) + "'\n"), "diff_too_large"),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFS)
def test_relatives_of_the_grammar_rows_are_refused(name: str) -> None:
    diff, reason = DIFFS[name]
    assert refused(diff, globs=ALL) == reason


CHARACTERS = {
    "control_character": ["\x00", "\x01", "\x08", "\x0b", "\x0c", "\r", "\x1a", "\x1b[2K", "\x1c", "\x1d", "\x1e", "\x1f", "\x7f"],
    "invisible_character": [
        "\x80", "\x85", "\x9b", "\u2028", "\u2029", "\ufeff", "\u200b", "\u200c", "\u200d", "\u200e", "\u200f", "\u202a", "\u202e", "\u2066", "\u2069", "\u061c",
        "\xad", "\u2060", "\u3164", "\uffa0", "\u115f", "\u180e", "\ufe0f", "\ufff9", "\ufffe", "\ue000", "\U000e0041", "\U000e0100", "\U0010ffff", "\u034f", "\u17b5",
    ],
    "not_utf8": ["\ud800", "\udfff", "\udc80", "\ud83d \ude00"],
}  # fmt: skip


@pytest.mark.parametrize(("reason", "text"), [(reason, text) for reason, texts in CHARACTERS.items() for text in texts])
@pytest.mark.parametrize("line", ["    return a + b  # {}", "    return a + len('{}')", "    return a +{} b"])
def test_source_that_reads_other_than_it_runs_is_refused(reason: str, text: str, line: str) -> None:
    assert refused(replaced(line.format(text)), globs=ALL) == reason


def test_the_hidden_characters_are_the_ones_that_unicode_calls_so() -> None:
    visible_format = {
        "\u0600",
        "\u0601",
        "\u0602",
        "\u0603",
        "\u0604",
        "\u0605",
        "\u06dd",
        "\u070f",
        "\u0890",
        "\u0891",
        "\u08e2",
    }
    visible_format |= {"\U000110bd", "\U000110cd"} | {chr(c) for c in range(0x13430, 0x13440)}
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        if (
            char not in "\t\n"
            and unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp", "Co")
            and char not in visible_format
        ):
            assert source.HIDDEN.match(char), hex(code)
    assert not source.HIDDEN.search("\t\n äß€中文שלוםمرحبا😀  ~")  # fmt: skip


def test_what_the_fixture_has_may_stay_but_not_spread() -> None:
    base = {"calc.py": "X = '\u202e\u200b'\r\ndef add(a, b):\n    return a - b\n"}
    edit = "--- a/calc.py\n+++ b/calc.py\n@@ -3 +3 @@\n-    return a - b\n+    return a + b{}\n"
    assert admit(edit.format(""), base, ALL).changed
    assert refused(edit.format(" # \u202e"), base, ALL) == "invisible_character"
    assert refused(edit.format("\r"), base, ALL) == "control_character"
    assert refused(new_file("pkg/n.py", "X = '\u202e\u200b'\n"), base, ALL) == "invisible_character"


COOKIES = [
    "# coding: utf-7", "#coding=rot13", "# -*- coding: latin-1 -*-", "# vim: set fileencoding=cp1252 :", "# coding: nonsense", "# coding:\tutf-16", "# coding= utf_8_sig", "# coding: UTF-8-SIG",
    "\t # coding: raw_unicode_escape", "# encoding: unicode_escape", "#!/x coding: idna coding: utf-8", "# x coding: punycode", "# coding: hex",
]  # fmt: skip


@pytest.mark.parametrize("cookie", COOKIES)
@pytest.mark.parametrize("before", ["", "\n", "# x\n", "X = 1\n"])
def test_encodings_other_than_utf8_are_refused(cookie: str, before: str) -> None:
    assert refused(new_file("pkg/c.py", f"{before}{cookie}\nX = 2\n"), globs=ALL) == "encoding_cookie"


def test_utf8_may_be_said_and_later_lines_say_nothing() -> None:
    for text in ("# -*- coding: utf-8 -*-\nX = 1\n", "# coding=UTF8\nX = 1\n", "\n\n# coding: utf-7\nX = 1\n"):
        assert admit(new_file("pkg/c.py", text), BASE, ALL).changed


NO_OPS = {
    "comment": ("def f(x):\n    return x\n", "# fixed\ndef f(x):\n    return x  # really\n"),
    "indent": ("def f(x):\n    return x\n", "def f(x):\n\treturn x\n"),
    "spaces": ("def f(x):\n    return x+1\n", "def f( x ):\n    return x + 1   \n"),
    "line break in brackets": ("def f(x):\n    return g(x, 1)\n", "def f(x):\n    return g(\n        x,\n        1)\n"),
    "backslash": ("def f(x):\n    return x + 1\n", "def f(x):\n    return x \\\n        + 1\n"),
    "final newline": ("X = 1", "X = 1\n"),
    "many comments": ("X = 1\n", "#\n" * 1500 + "X = 1\n"),
}
CHANGES = {
    "docstring": ('def f(x):\n    """a"""\n', 'def f(x):\n    """b"""\n'),
    "spaces in a text": ("X = '''a\n\n'''\n", "X = '''a\n'''\n"),
    "trailing space in a text": ("X = '''a\nb'''\n", "X = '''a \nb'''\n"),
    "dedent": ("for i in x:\n    a\n    b\n", "for i in x:\n    a\nb\n"),
    "quotes": ("X = 'a'\n", 'X = "a"\n'),
    "broken": ("X = (1\n", "X = (1\n# y\n"),
    "hash in a text": ("X = '#a'\n", "X = '#b'\n"),
}


def whole(old: str, new: str) -> str:
    from services.patch.render import render

    return render({"pkg/m.py": old}, {"pkg/m.py": new})


@pytest.mark.parametrize("name", NO_OPS)
def test_layout_and_comments_are_no_change(name: str) -> None:
    old, new = NO_OPS[name]
    assert refused(whole(old, new), {"pkg/m.py": old}, ALL) == "no_change"


@pytest.mark.parametrize("name", CHANGES)
def test_what_may_change_a_program_is_judged_by_running_it(name: str) -> None:
    old, new = CHANGES[name]
    assert admit(whole(old, new), {"pkg/m.py": old}, ALL).changed == ("pkg/m.py",)


def test_a_no_op_beside_a_change_is_a_change() -> None:
    assert admit(GOOD + "--- a/pkg/util.py\n+++ b/pkg/util.py\n@@ -1 +1 @@\n-X = 1\n+X = 1  # y\n", BASE, ALL).changed


def test_a_text_file_of_blank_lines_more_is_no_change() -> None:
    diff = "--- a/data/notes.txt\n+++ b/data/notes.txt\n@@ -1 +1,2 @@\n a\n+\n"
    assert refused(diff, TREE, ("data/*.txt",)) == "no_change"


def test_details_carry_no_text_that_a_terminal_obeys() -> None:
    for path in ("pkg/\x1b[2J.py", "pkg/\u202egnp.py"):
        with pytest.raises(Refused) as caught:
            admit(new_file(path), BASE, ALL)
        assert str(caught.value).isascii()
        assert str(caught.value).isprintable()
