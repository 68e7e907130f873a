# ruff: noqa: E501 - attacks are read as one line each
"""Protects the fixture: what a candidate's diff may be, every P-row of the attack list, and that no text escapes it."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.patch import paths
from services.patch.admission import MAX_DIFF_BYTES, Refused, admit
from services.patch.render import render

BASE = {"calc.py": "def add(a, b):\n    return a - b\n", "pkg/util.py": "X = 1\nY = 2\n", "tests/test_calc.py": "ok\n"}
GLOBS = ("calc.py", "pkg/*.py")
GOOD = "--- a/calc.py\n+++ b/calc.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a - b\n+    return a + b\n"


def new_file(path: str, text: str = "x = 1\n", head: str = "") -> str:
    lines = text.split("\n")[:-1]
    body = "".join(f"+{line}\n" for line in lines)
    return f"{head}--- /dev/null\n+++ b/{path}\n@@ -0,0 +1,{len(lines)} @@\n{body}"


def refused(diff: str, base: dict[str, str] = BASE, globs: tuple[str, ...] = GLOBS) -> str:
    with pytest.raises(Refused) as caught:
        admit(diff, base, globs)
    return caught.value.reason


def test_a_plain_edit_is_admitted() -> None:
    got = admit(GOOD, BASE, GLOBS)
    assert got.tree["calc.py"] == "def add(a, b):\n    return a + b\n"
    assert got.changed == ("calc.py",)
    assert got.tree["pkg/util.py"] == BASE["pkg/util.py"]


def test_git_style_headers_are_admitted_when_they_agree() -> None:
    assert admit("diff --git a/calc.py b/calc.py\nindex 0123abcd..4567cdef 100644\n" + GOOD, BASE, GLOBS).changed
    head = "diff --git a/pkg/more.py b/pkg/more.py\nnew file mode 100644\nindex 0000000..4567cdef\n"
    assert admit(new_file("pkg/more.py", head=head), BASE, GLOBS).tree["pkg/more.py"] == "x = 1\n"


def test_two_diffs_that_make_one_tree_are_one_candidate() -> None:
    wide = "--- a/calc.py\n+++ b/calc.py\n@@ -1,2 +1,2 @@\n-def add(a, b):\n-    return a - b\n+def add(a, b):\n+    return a + b\n"
    assert admit(wide, BASE, GLOBS).digest == admit(GOOD, BASE, GLOBS).digest


ALL = ("**/*", "*")
P_ROWS = {
    "P1 dotdot": (new_file("../x.py"), ALL, "path_grammar"),
    "P1 inner dotdot": (new_file("pkg/../../x.py"), ALL, "path_grammar"),
    "P1 dot": (new_file("./x.py"), ALL, "path_grammar"),
    "P1 double slash": (new_file("pkg//x.py"), ALL, "path_grammar"),
    "P1 absolute": (GOOD.replace("a/calc.py", "/tmp/x"), ALL, "grammar"),
    "P1 absolute behind prefix": (new_file("/tmp/x.py"), ALL, "path_grammar"),
    "P1 no prefix": (GOOD.replace("a/calc.py", "calc.py"), ALL, "grammar"),
    "P1 backslash": (new_file("pkg\\x.py"), ALL, "path_grammar"),
    "P1 nul": (new_file("pkg/x\0.py"), ALL, "path_grammar"),
    "P1 control": (new_file("pkg/x\x07.py"), ALL, "path_grammar"),
    "P2 .git": (new_file(".git/hooks/post-checkout"), ALL, "path_grammar"),
    "P2 .GIT": (new_file("pkg/.GIT/config"), ALL, "path_grammar"),
    "P2 git~1": (new_file("git~1/config"), ALL, "path_grammar"),
    "P3 symlink": (new_file("pkg/l.py", head="diff --git a/pkg/l.py b/pkg/l.py\nnew file mode 120000\n"), ALL, "grammar"),
    "P4 type change": (GOOD + new_file("calc.py", head=""), ALL, "twice"),
    "P4 new over existing": (new_file("calc.py"), ALL, "exists"),
    "P5 gitlink": (new_file("pkg/s", head="diff --git a/pkg/s b/pkg/s\nnew file mode 160000\n"), ALL, "grammar"),
    "P5 gitmodules": (new_file(".gitmodules"), ALL, "path_grammar"),
    "P5 gitattributes": (new_file("pkg/.gitattributes"), ALL, "path_grammar"),
    "P6 rename header": (
        "diff --git a/calc.py b/conftest.py\nsimilarity index 100%\nrename from calc.py\nrename to conftest.py\n", ALL, "grammar"),
    "P6 copy header": ("diff --git a/calc.py b/pkg/c.py\ncopy from calc.py\ncopy to pkg/c.py\n", ALL, "grammar"),
    "P6 two names": (GOOD.replace("b/calc.py", "b/pkg/util.py"), ALL, "rename"),
    "P6 git line names another": ("diff --git a/pkg/util.py b/pkg/util.py\n" + GOOD, ALL, "grammar"),
    "P9 octal": (new_file('"pkg/\\303\\244.py"'), ALL, "path_grammar"),
    "P9 zero width": (new_file("pkg/a\u200b.py"), ALL, "path_grammar"),
    "P9 bidi": (new_file("pkg/\u202ex.py"), ALL, "path_grammar"),
    "P9 homoglyph": (new_file("c\u0430lc.py"), ALL, "path_grammar"),
    "P9 space": (new_file("pkg/a b.py"), ALL, "path_grammar"),
    "P10 binary": ("diff --git a/calc.py b/calc.py\nGIT binary patch\nliteral 3\nKcmZ\n\n", ALL, "grammar"),
    "P10 binary files": ("Binary files a/calc.py and b/calc.py differ\n", ALL, "grammar"),
    "P10 size": (new_file("pkg/big.py", "x = 1\n" * 50_000), ALL, "diff_too_large"),
    "P10 lines": (new_file("pkg/big.py", "x=1\n" * 2_001), ALL, "too_many_lines"),
    "P10 files": ("".join(new_file(f"pkg/f{n}.py") for n in range(51)), ALL, "too_many_files"),
    "P11 mode change": ("diff --git a/calc.py b/calc.py\nold mode 100644\nnew mode 100755\n" + GOOD, ALL, "grammar"),
    "P11 executable": (new_file("pkg/x.py", head="diff --git a/pkg/x.py b/pkg/x.py\nnew file mode 100755\n"), ALL, "grammar"),
    "P11 setuid": (new_file("pkg/x.py", head="diff --git a/pkg/x.py b/pkg/x.py\nnew file mode 104755\n"), ALL, "grammar"),
    "P12 test edit": ("--- a/tests/test_calc.py\n+++ b/tests/test_calc.py\n@@ -1 +1 @@\n-ok\n+no\n", GLOBS, "path_not_allowed"),
    "P12 test delete": ("--- a/tests/test_calc.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-ok\n", GLOBS, "path_not_allowed"),
    "P12 glob stays in its folder": (new_file("pkg/sub/x.py"), GLOBS, "path_not_allowed"),
    "P14 json": (new_file("json.py"), ALL, "shadows_library"),
    "P14 package": (new_file("asyncio/__init__.py"), ALL, "shadows_library"),
    "P14 collision": (new_file("CALC.py"), ALL, "path_collision"),
    "P14 file as folder": (new_file("calc.py/x.py"), ALL, "path_collision"),
    "P16 carriage return": (GOOD.replace("a + b\n", "a + b\r\n"), ALL, "control_character"),
    "P16 nul in source": (GOOD.replace("a + b", "a +\0 b"), ALL, "control_character"),
    "P16 form feed": (GOOD.replace("a + b", "a +\x0c b"), ALL, "control_character"),
    "P16 cookie": (new_file("pkg/c.py", "# -*- coding: utf-7 -*-\n"), ALL, "encoding_cookie"),
    "P16 cookie second line": (new_file("pkg/c.py", "\n# vim: set fileencoding=latin-1\n"), ALL, "encoding_cookie"),
    "P16 surrogate": (GOOD.replace("a + b", "a + '\ud800'"), ALL, "not_utf8"),
    "P19 stale context": (GOOD.replace(" def add(a, b):", " def add(a, c):"), ALL, "context"),
    "P19 wrong line": (GOOD.replace("@@ -1,2 +1,2 @@", "@@ -2,2 +2,2 @@"), ALL, "context"),
    "P19 new side lies": (GOOD.replace("+1,2", "+3,2"), ALL, "context"),
    "P20 empty": ("", ALL, "no_change"),
    "P20 blank": ("\n\n", ALL, "no_change"),
    "P20 same": (GOOD.replace("+    return a + b", "+    return a - b"), ALL, "no_change"),
    "P20 trailing space": (GOOD.replace("+    return a + b", "+    return a - b  "), ALL, "no_change"),
    "P20 blank line": ("--- a/calc.py\n+++ b/calc.py\n@@ -2 +2,2 @@\n     return a - b\n+\n", ALL, "no_change"),
    "prose around": ("Here is the fix:\n" + GOOD, ALL, "grammar"),
    "garbage after": (GOOD + "-- \n2.39\n", ALL, "grammar"),
    "cut": (GOOD[:-20], ALL, "grammar"),
    "missing file": (GOOD.replace("calc.py", "gone.py"), ALL, "missing"),
    "delete part": ("--- a/pkg/util.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-X = 1\n", ALL, "context"),
}  # fmt: skip


@pytest.mark.parametrize("name", P_ROWS)
def test_p_rows_are_refused(name: str) -> None:
    diff, globs, reason = P_ROWS[name]
    assert refused(diff, globs=globs) == reason


P13 = """conftest.py sitecustomize.py usercustomize.py evil.pth pytest.ini tox.ini setup.cfg pyproject.toml setup.py
x.dist-info/entry_points.txt __pycache__/calc.cpython-311.pyc x.so pyvenv.cfg .env .coveragerc Makefile CONFTEST.PY
site-packages/x.py""".split()  # noqa: SIM905 - a list of names reads better as text


@pytest.mark.parametrize("name", P13)
@pytest.mark.parametrize("folder", ["", "pkg/"])
def test_names_that_configure_interpreter_or_runner_are_denied_even_inside_allowed_folders(
    name: str, folder: str
) -> None:
    assert refused(new_file(folder + name), globs=ALL) in ("path_denied", "path_grammar")


def test_a_dedent_is_a_change_in_python() -> None:
    base = {"calc.py": "def f(x):\n    for i in x:\n        y = i\n        return y\n"}
    diff = render(base, {"calc.py": "def f(x):\n    for i in x:\n        y = i\n    return y\n"})
    assert admit(diff, base, GLOBS).changed == ("calc.py",)


def test_missing_final_newline_round_trips() -> None:
    base = {"calc.py": "a = 1\nb = 2"}
    for text in ("a = 1\nb = 3", "a = 1\nb = 3\n", "a = 1\nb = 2\nc = 3"):
        assert admit(render(base, {"calc.py": text}), base, GLOBS).tree == {"calc.py": text}


LINE = st.text(
    st.characters(codec="utf-8", exclude_characters="\r\n\x0c\x0b\x1c\x1d\x1e\x7f", min_codepoint=32), max_size=6
)
TEXT = st.builds(
    lambda lines, end: "\n".join(lines) + end, st.lists(LINE, min_size=1, max_size=12), st.sampled_from(["", "\n"])
)
NAMES = st.sampled_from(["calc.py", "pkg/util.py", "pkg/extra.py", "tests/test_calc.py", "other.txt"])


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(NAMES, TEXT, max_size=4), st.dictionaries(NAMES, TEXT, max_size=4))
def test_an_admitted_rendering_gives_the_rendered_tree_and_stays_inside_the_globs(base, tree) -> None:
    diff = render(base, tree)
    try:
        got = admit(diff, base, GLOBS)
    except Refused:
        return
    # Files without a line vanish from a diff; every other difference must be exactly there.
    assert {p: t for p, t in got.tree.items() if t} == {p: t for p, t in tree.items() if t}
    assert all(paths.allowed(p, GLOBS) for p in got.changed)
    assert admit(render(base, got.tree), base, GLOBS).tree == got.tree


FRAGMENTS = st.sampled_from([
    "--- a/calc.py\n", "+++ b/calc.py\n", "--- /dev/null\n", "+++ b/pkg/n.py\n", "+++ /dev/null\n", "@@ -1,2 +1,2 @@\n",
    "@@ -0,0 +1 @@\n", "@@ -1 +1 @@\n", " def add(a, b):\n", "-    return a - b\n", "+    return a + b\n", "+x\n", "\n", " \n",
    "diff --git a/calc.py b/calc.py\n", "new file mode 100644\n", "deleted file mode 100644\n", "index 0000000..1111111\n",
    "rename from a\n", "old mode 100644\n", "\\ No newline at end of file\n", "@@ -9999999,9999999 +1 @@\n", "GIT binary patch\n",
    "+++ b/../../etc/passwd\n", "--- a/tests/test_calc.py\n",
])  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.one_of(st.text(max_size=200), st.lists(FRAGMENTS, max_size=14).map("".join)))
@example("--- a/calc.py\n+++ b/calc.py\n@@ -1,0 +1,0 @@\n")
def test_no_text_crashes_admission_and_what_it_admits_only_touches_allowed_paths(diff: str) -> None:
    try:
        got = admit(diff, BASE, GLOBS)
    except Refused:
        return
    for path in got.tree.keys() | BASE.keys():
        if got.tree.get(path) != BASE.get(path):
            assert paths.allowed(path, GLOBS)
            assert paths.name_fault(path) is None


def test_caps_hold_before_anything_is_parsed() -> None:
    assert refused("x" * (MAX_DIFF_BYTES + 1)) == "diff_too_large"
