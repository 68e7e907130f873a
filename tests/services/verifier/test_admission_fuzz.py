# ruff: noqa: E501 - shapes are read as one line each
"""No text brings admission down, gets out of the globs, or costs more than a pass over it."""

import random
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.patch import admission, paths, source
from services.patch.admission import MAX_CHANGED_LINES, MAX_DIFF_BYTES, MAX_FILES, Admitted, Refused, admit
from services.patch.render import render
from tests.services.verifier.test_admission import BASE, GLOBS, GOOD, new_file

WIDE = ("calc.py", "pkg/*.py", "new/**/*.py")
BASES = {**BASE, "pkg/bare.py": "A = 1\nB = 2\nC = 3", "pkg/empty.py": "", "pkg/long.py": "x = 1\n" * 40}


def holds(diff: str, base: dict[str, str], globs: tuple[str, ...]) -> Admitted | None:
    """Every promise of an admitted diff; None for a refused one. Anything but Refused is a failure of the test."""
    try:
        got = admit(diff, base, globs)
    except Refused:
        return None
    differ = {path for path in got.tree.keys() | base.keys() if got.tree.get(path) != base.get(path)}
    assert differ == set(got.changed)
    assert differ
    for path in differ:
        assert paths.allowed(path, globs)
        assert paths.name_fault(path) is None
        text = got.tree.get(path, "")
        text.encode("utf-8")
        assert len(text.encode()) <= len(base.get(path, "").encode()) + MAX_DIFF_BYTES
        assert all(line in base.get(path, "").split("\n") for line in text.split("\n") if source.HIDDEN.search(line))
    assert len(differ) <= MAX_FILES
    again = admit(render(base, got.tree), base, globs)
    assert again.tree == got.tree
    assert again.digest == got.digest
    return got


FILES = st.sampled_from(["calc.py", "pkg/util.py", "pkg/bare.py", "pkg/empty.py", "pkg/long.py", "pkg/n.py", "new/a/b.py", "json.py",
    "tests/test_calc.py", "../x.py", "pkg/conftest.py", "calc.py/x.py", "CALC.py", "pkg/__init__.py", "pkg/\u202ex.py", "/etc/passwd", ""])  # fmt: skip
NUMBERS = st.one_of(
    st.integers(0, 5),
    st.sampled_from(["", "01", "-1", "9999999", "99999999999999999999", "\u0663", "+1", "0x1", "1e3"]),
)
LINES = st.one_of(
    st.sampled_from(["def add(a, b):", "    return a - b", "    return a + b", "X = 1", "Y = 2", "A = 1", "C = 3", "x = 1", "", "# coding: utf-7"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=8),
)  # fmt: skip
MARKED = st.one_of(
    st.builds(lambda mark, line: f"{mark}{line}", st.sampled_from([" ", "-", "+", "+", "", "\\", "\t"]), LINES),
    st.just("\\ No newline at end of file"),
)


@st.composite
def hunks(draw) -> list[str]:
    body = draw(st.lists(MARKED, max_size=6))
    if draw(st.booleans()):  # counts that are right, so that the body is reached
        old = sum(line[:1] in (" ", "-") for line in body)
        new = sum(line[:1] in (" ", "+") for line in body)
    else:
        old, new = draw(NUMBERS), draw(NUMBERS)
    start = draw(NUMBERS)
    return [
        f"@@ -{start},{old} +{draw(st.just(start) | NUMBERS)},{new} @@{draw(st.sampled_from(['', ' def f', 'x']))}",
        *body,
    ]


@st.composite
def sections(draw) -> list[str]:
    path = draw(FILES)
    old, new = draw(
        st.sampled_from(
            [("a/", "b/"), ("a/", "b/"), ("/dev/null", "b/"), ("a/", "/dev/null"), ("/dev/null",) * 2, ("", "")]
        )
    )
    head = [f"--- {old if old.startswith('/') else old + path}", f"+++ {new if new.startswith('/') else new + path}"]
    extra = draw(st.lists(st.sampled_from([f"diff --git a/{path} b/{path}", "new file mode 100644", "deleted file mode 100644", "new file mode 120000",
        "old mode 100644", "index 0000000..1111111", "rename from calc.py", "GIT binary patch", "similarity index 100%"]), max_size=2))  # fmt: skip
    return [*extra, *head, *(line for hunk in draw(st.lists(hunks(), max_size=3)) for line in hunk)]


@settings(max_examples=400, deadline=None)
@given(
    st.lists(sections(), max_size=4),
    st.sampled_from(["\n", "\n", "\n", "\r\n", "\u2028"]),
    st.sampled_from(["\n", "\n", ""]),
)
def test_diffs_by_grammar(parts: list[list[str]], ending: str, last: str) -> None:
    holds(ending.join(line for part in parts for line in part) + last, BASES, WIDE)


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=300), st.text(alphabet="-+@ ab/.,019\n\\\0\r\u2028", max_size=300), st.binary(max_size=300).map(
    lambda raw: raw.decode("utf-8", "surrogateescape"))))  # fmt: skip
@example("\ud800")
@example("--- a/calc.py\n+++ b/calc.py\n@@ -1,2 +1,2 @@\n")
def test_any_text(diff: str) -> None:
    holds(diff, BASES, WIDE)


LINE = st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=6)
TEXTS = st.builds(
    lambda lines, end: "\n".join(lines) + end, st.lists(LINE, min_size=1, max_size=8), st.sampled_from(["", "\n"])
)
TREES = st.dictionaries(
    st.sampled_from(["calc.py", "pkg/util.py", "pkg/n.py", "new/a/b.py"]), TEXTS, min_size=1, max_size=4
)


@settings(max_examples=250, deadline=None)
@given(TREES, TREES, st.randoms(use_true_random=False), st.integers(0, 3))
def test_mutated_renderings(base: dict[str, str], tree: dict[str, str], rng: random.Random, edits: int) -> None:
    chars = list(render(base, tree))
    for _ in range(edits if chars else 0):
        at = rng.randrange(len(chars))
        what = rng.choice(["delete", "double", "swap", "put"])
        if what == "delete":
            chars[at] = ""
        elif what == "double":
            chars[at] *= 2
        elif what == "swap":
            other = rng.randrange(len(chars))
            chars[at], chars[other] = chars[other], chars[at]
        else:
            chars[at] = rng.choice("\n-+ @\\\r\0\u202ea/.")
    holds("".join(chars), base, WIDE)


def worst_cases() -> dict[str, tuple[str, dict[str, str]]]:
    """Shapes that a careless reader takes quadratic time for, each as large as a diff may be."""
    room = MAX_DIFF_BYTES - 300
    quotes = "'" + "\\'" * (room // 2)
    one_line = "--- a/calc.py\n+++ b/calc.py\n@@ -2 +2 @@\n-    return a - b\n+{}\n"
    large = {"calc.py": "x = (\n" + "1,\n" * 300_000 + ")\n"}  # of the fixture, which a candidate cannot make larger
    many = {f"pkg/f{n}/m{k}.py": "X = 1\n" for n in range(100) for k in range(20)}
    return {
        "escaped quotes": (one_line.format(quotes), BASE),
        "quotes alone": (one_line.format("'\"" * (room // 2)), BASE),
        "brackets": (one_line.format("(" * room), BASE),
        "digits": (one_line.format("x = " + "9_" * (room // 2)), BASE),
        "cookies": (new_file("pkg/n.py", "#" + " coding=" * (room // 8) + "\n"), BASE),
        "cookie spaces": (new_file("pkg/n.py", "# coding:" + " " * room + "\n"), BASE),
        "backslashes": (new_file("pkg/n.py", "\\\n" * 1900 + "x = 1\n"), BASE),
        "comments": (one_line.format("    return a - b  #" + "#" * room), BASE),
        "open text": (one_line.format('    return """' + "a" * room), BASE),
        "hidden characters": (one_line.format("\u200b" * (room // 3)), BASE),
        "hunk header": (GOOD.replace("+1,2 @@", "+1,2 @@ " + "@@ " * (room // 3 - 20)), BASE),
        "hunks": ("--- a/calc.py\n+++ b/calc.py\n" + "@@ -1,0 +1,0 @@\n" * (room // 16), BASE),
        "headers": (new_file("pkg/n.py") * (room // 60), BASE),
        "slashes": (new_file("pkg/" + "a/" * (room // 2) + "x.py"), BASE),
        "dots": (new_file("." * room), BASE),
        "blank lines": ("\n" * room, BASE),
        "large file": ("--- a/calc.py\n+++ b/calc.py\n@@ -300001,2 +300001,3 @@\n 1,\n )\n+# y\n", large),
        "many files": ("".join(new_file(f"pkg/f{n}/new.py") for n in range(MAX_FILES)), many),
        "many lines": (new_file("pkg/n.py", "x=1\n" * MAX_CHANGED_LINES), BASE),
    }  # fmt: skip


@pytest.mark.parametrize("name", worst_cases())
def test_the_cost_of_the_worst_shapes_grows_with_their_size_only(name: str) -> None:
    """Interpreter steps are counted, not timed; what hangs inside one regular expression meets the test's time limit."""
    diff, base = worst_cases()[name]
    assert len(diff.encode()) <= MAX_DIFF_BYTES
    steps = 0

    def count(frame: object, event: str, argument: object) -> object:
        nonlocal steps
        steps += 1
        return count

    sys.settrace(count)
    try:
        holds_or_refuses(diff, base)
    finally:
        sys.settrace(None)
    assert steps < 2_000_000


def holds_or_refuses(diff: str, base: dict[str, str]) -> None:
    try:
        admit(diff, base, (*GLOBS, "pkg/**/*.py"))
    except Refused:
        return


def test_no_module_of_admission_compiles_what_it_reads() -> None:
    """A hostile text can crash a compiler by its C stack: that must happen in a jail."""
    for module in (admission, source, paths):
        names = vars(module)
        assert not {"ast", "compile", "exec", "eval"} & names.keys()
        assert "compile(" not in Path(str(module.__file__)).read_text().replace("re.compile(", "")
