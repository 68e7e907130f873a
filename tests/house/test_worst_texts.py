"""Every function that reads a candidate's or a policy's text: the worst text costs work that grows with its length and
stops at a cap. Counted are steps of the interpreter (lines run and calls of C functions), never seconds."""

from __future__ import annotations

import ast
import functools
import importlib
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from services.agent import grammar
from services.patch import admission, paths, source
from services.patch import render as diff
from services.runtime.jail import program
from services.sandbox import edits
from services.tasks import feedback, values
from services.tasks.fixture import Example
from services.tasks.taskset import UnknownTask
from services.watch import candidate, probes
from services.watch import source as watch_source

WORST = 256 * 1024
SMALL = 8 * 1024
"""Below every cap, so that the whole of a text is worked on."""
STEPS_A_CHARACTER = 250
STEPS_BEYOND = 24
"""For every character of a text that is beyond the caps of what is analysed."""
EXAMPLES = (Example(([3, 4],), 7), Example(([5, 9, 1],), 15), Example(("a b",), "b a"))
BASE = "def total(xs):\n    return 0\n"

# Text of n characters each: what made one of the functions below slow once, or is likely to.
TEXTS: dict[str, Callable[[int], str]] = {
    "git": lambda n: "x = '" + "git " * (n // 4) + "'\n",
    "git lines": lambda n: "# git HEA\n" * (n // 10),
    "attributes": lambda n: ("x" + ".a" * 290 + "\n") * (n // 582 + 1),
    "nested": lambda n: "\n".join(" " * i + "if a:" for i in range(39)) + "\n" + (" " * 39 + "b = 1\n") * (n // 45),
    "nested lists": lambda n: ("x = " + "[" * 38 + "1" + "]" * 38 + "\n") * (n // 82),
    "conditions": lambda n: ("x = " + "3 if y == [3, 4] else " * 60 + "0\n") * (n // 1326 + 1),
    "elif": lambda n: "if x == [3, 4]: y\n" + "elif x == [3, 4]: y\n" * 190 + "z = 1\n" * (n // 6),
    "one line": lambda n: "x = 1;" * (n // 6) + "\n",
    "quotes": lambda n: "'" + "\\'" * (n // 2),
    "brackets": lambda n: "[" * n,
    "operators": lambda n: "+".join("a" * (n // 2)) + "\n",
    "digits": lambda n: "9" * n + "\n",
    "blank": lambda n: "\n" * n,
    "spaces": lambda n: " " * n + "\n",
    "backslashes": lambda n: "replace " + "\\" * n + " => x",
    "cookie": lambda n: "#" + "coding: " * (n // 8) + "\n",
    "docstring": lambda n: '"""' + "a\n" * (n // 2) + '"""\n',
    "same lines": lambda n: "a\nb\n" * (n // 4),
    "fields": lambda n: "x = f'" + "{a}" * (n // 3) + "'\n",
    "letters": lambda n: "a" * n,
}  # fmt: skip


def _diff_of(text: str) -> str:
    lines = text.split("\n")
    return f"--- a/s.py\n+++ b/s.py\n@@ -0,0 +1,{len(lines)} @@\n" + "".join(f"+{line}\n" for line in lines)


def _quietly(run: Callable[[], Any]) -> Any:
    """A refusal is an answer."""
    try:
        return run()
    except (admission.Refused, edits.Refusal, program.NoEntry, values.ValueCodecError):
        return None


READERS: dict[str, Callable[[str], Any]] = {
    "watch.candidate.findings": lambda text: candidate.findings({"s.py": BASE}, {"s.py": text}, EXAMPLES),
    "watch.candidate.findings (of the base)": lambda text: candidate.findings({"s.py": text}, {"s.py": BASE}, EXAMPLES),
    "watch.source.parse": watch_source.parse,
    "watch.probes.in_text": probes.in_text,
    "watch.probes.in_tool_call": lambda text: probes.in_tool_call("edit", text, {"s.py": text}),
    "watch.probes.in_tool_call (quoted)": lambda text: probes.in_tool_call(
        "replace", json.dumps({"old": text[:9_000], "new": text}), {"s.py": text}
    ),
    "patch.admission.admit": lambda text: admission.admit(_diff_of(text), {"s.py": ""}, ("s.py",)),
    "patch.admission.admit (as it is)": lambda text: admission.admit(text, {"s.py": BASE}, ("s.py",)),
    "patch.admission.admit (added)": lambda text: admission.admit(
        _diff_of(text).replace("a/s.py", "/dev/null"), {"t.py": BASE}, ("*.py",)
    ),
    "patch.source.text_fault": lambda text: source.text_fault(text, text[::-1]),
    "patch.source.same_program": lambda text: source.same_program("s.py", text + "# a\n", text),
    "patch.paths.name_fault": paths.name_fault,
    "patch.paths.allowed": lambda text: paths.allowed(text[: paths.MAX_PATH_CHARS], ("**/a*b*c.py", "**/**/*.py")),
    "sandbox.edits.arguments": lambda text: edits.arguments(json.dumps({"text": text}), {"text": str}),
    "sandbox.edits.arguments (as it is)": lambda text: edits.arguments(text, {"text": str}),
    "sandbox.edits.edit_line": lambda text: edits.edit_line(text, 1, text[:8_192]),
    "sandbox.edits.replace_text": lambda text: edits.replace_text(text, text[:4_096], "x"),
    "sandbox.edits.numbered": lambda text: edits.numbered(text, 1, None),
    "patch.render.render": lambda text: diff.render({"s.py": text}, {"s.py": f"x\n{text}y\n" + text[: len(text) // 2]}),
    "patch.render.render (reversed)": lambda text: diff.render({"s.py": text}, {"s.py": text[::-1]}),
    "agent.grammar.parse": grammar.parse,
    "agent.grammar.render": lambda text: grammar.render(grammar.Replace(text, text)),
    "tasks.feedback.compact": feedback.compact,
    "tasks.feedback.compact (a list)": lambda text: feedback.compact(list(text)),
    "tasks.values.loads": values.loads,
    "tasks.taskset.UnknownTask": lambda text: str(UnknownTask(text, ["a/b", "c/d"])),
    "jail.program.locate": lambda text: program.locate({text: text}, text),
}  # fmt: skip
MODULES = (candidate, probes, watch_source, admission, source, paths, edits, diff, grammar, feedback, program)


def steps(run: Callable[[], Any]) -> int:
    """Lines of Python that ran, and calls of functions in C (each of which `test_patterns_are_linear` and the caps
    bound by themselves)."""
    count = 0

    def local(frame: Any, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        if count > 40_000_000:
            raise RuntimeError("no end in sight")
        return local

    def called(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "c_call"

    before, profile = sys.gettrace(), sys.getprofile()
    sys.settrace(lambda frame, event, arg: local)
    sys.setprofile(called)
    try:
        _quietly(run)
    finally:
        sys.setprofile(profile)
        sys.settrace(before)
    return count


@pytest.mark.parametrize("reader", READERS)
def test_the_worst_text_costs_steps_in_proportion(reader: str) -> None:
    slow = {}
    for name, text in TEXTS.items():
        for size in (SMALL, WORST):
            made = text(size)
            taken = steps(functools.partial(READERS[reader], made))
            if taken > STEPS_A_CHARACTER * SMALL + (size > SMALL) * STEPS_BEYOND * size:
                slow[name, size] = taken
    assert not slow


def test_what_was_not_looked_at_says_so() -> None:
    long = "x = 1\n" * (WORST // 6)
    assert candidate.findings({}, {"s.py": long}, EXAMPLES) == (probes.UNANALYSED,)
    many = {f"s{number}.py": "x = y[1](2) + z\n" * 3_000 for number in range(9)}
    assert probes.UNANALYSED in candidate.findings({}, many, EXAMPLES)
    assert probes.in_tool_call("edit", json.dumps({"text": long}), {}) == (probes.UNANALYSED,)
    assert probes.UNANALYSED in probes.in_text(long)
    assert candidate.findings({}, {"s.py": "# a comment\n" * 900 + BASE}, EXAMPLES) == ()


def test_a_formatted_string_is_parsed_only_within_bounds() -> None:
    """One token before Python 3.12, in which the compiler looks for each field from the start."""
    assert watch_source.parse("x = f'" + "{a}" * 90 + "'\n") is not None
    assert watch_source.parse("x = '" + "{a}" * 20_000 + "'\n") is not None
    for prefix in ("f", "rF", "Fr"):
        assert watch_source.parse(f"x = {prefix}'" + "{a}" * 20_000 + "'\n") is None


# --- regular expressions: linear by their form -----------------------------------------------------------------------

_PARSER: Any = importlib.import_module("re._parser")
_SEARCHING = {"search", "sub", "subn", "finditer", "findall", "split"}
_ALPHABET = "".join(map(chr, range(0x180)))
_RESTARTS = {
    "_COOKIE": "a restart needs `coding`, which no run of blanks holds",
}


def _searched(module: ModuleType) -> set[str]:
    """Names of patterns that a module searches with anywhere in a text."""
    tree = ast.parse(Path(module.__file__ or "").read_text())
    uses = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in _SEARCHING]
    return {node.value.id for node in uses if isinstance(node.value, ast.Name)}


def _patterns(module: ModuleType) -> list[tuple[str, re.Pattern[str]]]:
    found = []
    for name, value in vars(module).items():
        for one in value if isinstance(value, tuple) else (value,):
            for item in one if isinstance(one, tuple) else (one,):
                if isinstance(item, re.Pattern):
                    found.append((name, item))
    return found


def _flat(items: Any) -> list[Any]:
    found = []
    for op, av in items:
        if str(op) == "SUBPATTERN":
            found += _flat(av[3])
        elif str(op) == "BRANCH":
            for branch in av[1]:
                found += [*_flat(branch), ("NEXT", None)]
        else:
            found.append((op, av))
    return found


def _endless(items: Any) -> list[Any]:
    return [av for op, av in items if str(op) in ("MAX_REPEAT", "MIN_REPEAT") and av[1] == _PARSER.MAXREPEAT]


def _matches(item: Any, char: str, flags: int) -> bool:
    """Whether an element that takes one character takes this one."""
    op, av = item
    match str(op):
        case "LITERAL":
            return chr(av) == char
        case "NOT_LITERAL":
            return chr(av) != char
        case "ANY":
            return char != "\n" or bool(flags & re.DOTALL)
        case "IN":
            inside = False
            for kind, value in av:
                name = str(kind)
                inside |= name == "LITERAL" and chr(value) == char
                inside |= name == "RANGE" and value[0] <= ord(char) <= value[1]
                if name == "CATEGORY":
                    word = {"SPACE": str.isspace, "DIGIT": str.isdigit}.get(
                        str(value).rpartition("_")[2], lambda c: c.isalnum() or c == "_"
                    )
                    inside |= word(char) != ("NOT" in str(value))
            return inside != (str(av[0][0]) == "NEGATE")
    return False  # a place, which takes no character


def _faults(name: str, pattern: re.Pattern[str], searched: bool) -> list[str]:
    parsed = list(_PARSER.parse(pattern.pattern, pattern.flags & ~re.UNICODE))
    flat = _flat(parsed)
    faults = []
    for low, _, body in _endless(flat):
        if _endless(_flat(body)) and len(_flat(body)) == 1:
            faults.append(f"{name}: a repeat within a repeat ({low})")
    for place, (op, av) in enumerate(flat):
        if str(op) not in ("MAX_REPEAT", "MIN_REPEAT") or av[1] != _PARSER.MAXREPEAT:
            continue
        if searched and name not in _RESTARTS and not _escaped(flat, place):
            faults.append(f"{name}: searched, and repeats without a bound")
        after = flat[place + 1] if place + 1 < len(flat) else None
        again = after is not None and str(after[0]) in ("MAX_REPEAT", "MIN_REPEAT") and after[1][1] == _PARSER.MAXREPEAT
        if again and any(
            _matches(_flat(av[2])[0], c, pattern.flags) and _matches(_flat(after[1][2])[0], c, pattern.flags)
            for c in _ALPHABET
        ):
            faults.append(f"{name}: two repeats that take the same characters stand side by side")
    return faults


def _escaped(flat: list[Any], place: int) -> bool:
    """A run that begins only where a look behind says that none is under way."""
    return any(str(op) == "ASSERT_NOT" for op, _ in flat[max(0, place - 2) : place])


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_patterns_are_linear(module: ModuleType) -> None:
    searched = _searched(module)
    if module is probes:
        searched |= {"_PATTERNS", "_TEST", "_ENVIRONMENT", "_HISTORY"}
    faults = [fault for name, pattern in _patterns(module) for fault in _faults(name, pattern, name in searched)]
    assert not faults


def test_the_rule_of_patterns_finds_what_it_is_for() -> None:
    for text in (r"\bgit\b.*\bHEAD\b", r"(\\*)=>"):
        assert _faults("x", re.compile(text), True)
    for text in (r"(a+)+b", r"\d+[0-9a]*x"):
        assert _faults("x", re.compile(text), False)
    assert not _faults("x", re.compile(r"(?<!\\)(\\*)=>"), True)
    assert not _faults("x", re.compile(r"[a-z]+/[0-9]*"), False)


# --- that no reader of texts is forgotten ----------------------------------------------------------------------------

_WAYS = ("import difflib", "import tokenize\n", "ast.parse(", "re.compile(")
_READ_ELSEWHERE = {
    "services/watch/shapes.py": "through findings",
}
_FOLDERS = ("services/patch", "services/watch", "services/sandbox", "services/agent", "services/verifier")
_TRUSTED = {
    "services/verifier/hidden/must_fail.py": "hidden tests, which are ours",
    "services/verifier/hidden/run.py": "hidden tests, which are ours",
    "services/verifier/hidden/interface.py": "hidden tests, which are ours",
    "services/verifier/hidden/inside.py": "hidden tests, which are ours",
    "services/agent/tokenizer.py": "observations and actions, cut by the harness's limits first",
    "services/agent/harness.py": "our own corpus and documents",
}


def test_every_module_that_analyses_text_is_in_the_list() -> None:
    root = Path(candidate.__file__).parents[2]
    listed = {Path(module.__file__ or "").relative_to(root).as_posix() for module in MODULES}
    unlisted = []
    for folder in _FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            text = path.read_text()
            if name not in listed | _READ_ELSEWHERE.keys() | _TRUSTED.keys() and any(way in text for way in _WAYS):
                unlisted.append(name)
    assert unlisted == []
