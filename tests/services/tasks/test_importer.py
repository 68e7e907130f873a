"""Protects the import of other people's files: sound questions, repairs that can be handed in, one message each."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.prepare import materials
from services.runtime.errors import UserError
from services.runtime.settings import load
from services.tasks.bench import Bench
from services.tasks.quick_look import look, passes
from services.tasks.quixbugs import BadProgram, load_quixbugs
from services.tasks.repair import admission_fault
from services.tasks.taskset import TaskSet


def line(name: str = "total", buggy: str = "", correct: str = "", cases: Any = None) -> dict[str, Any]:
    return {
        "name": name,
        "buggy": buggy or f"def {name}(xs):\n    return 0\n",
        "correct": correct or f"def {name}(xs):\n    return sum(xs)\n",
        "cases": cases or [[[[1, 2]], 3], [[[4]], 4], [[[]], 0]],
    }


def imported(tmp_path: Path, *lines: object, ending: str = "\n") -> TaskSet:
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(ending.join(one if isinstance(one, str) else json.dumps(one) for one in lines).encode())
    return load_quixbugs(path)


def judged(tasks: TaskSet, source: str) -> bool:
    (check,) = tasks.checks
    with Bench() as bench:
        return passes(bench, check, dict.fromkeys(check.reference, source), "seed")


MIXED = line(cases=[[[[1.5, 1.0]], 2.5], [[list(range(1001))], 500_500], [[[2, 3]], 5]])


def test_one_float_makes_nothing_else_inexact(tmp_path: Path) -> None:
    tasks = imported(tmp_path, MIXED)
    assert judged(tasks, "def total(xs): return sum(xs)\n")
    assert judged(tasks, "def total(xs): return sum(xs) * (1 + 1e-9) if 1.5 in xs else sum(xs)\n")
    assert not judged(tasks, "def total(xs): return sum(xs) + (40 if len(xs) > 9 else 0)\n")
    assert not judged(tasks, "def total(xs): return sum(xs) + (40.0 if len(xs) > 9 else 0)\n")
    assert not judged(tasks, "def total(xs): return float(sum(xs)) * (1 + 1e-12)\n")
    assert not judged(tasks, "def total(xs): return sum(xs) + (1e-3 if 1.5 in xs else 0)\n")


@pytest.mark.parametrize(("body", "want", "wrong"), [
    ("return (x / 2, x)", [0.5, 1], "return (x / 2, x + 0.00001)"),
    ("yield x / 2\n    yield x", [0.5, 1], "yield x / 2\n    yield True"),
    ("return {'a': x / 2, 'n': x}", {"a": 0.5, "n": 1}, "return {'a': x / 2, 'n': x, 'm': 0}"),
    ("return {'a': [(x / 3,)]}", {"a": [[1 / 3]]}, "return {'a': [(x / 3 + 0.001,)]}"),
    ("return 0.1 * 3 - 0.3", 0.0, "return 1e-6"),
    ("return x * 1e-17", 0.0, "return None"),
    ("return x * 0.5 - 0.5", -0.0, "return False"),
    ("return [float('inf') * x, -float('inf')]", [math.inf, -math.inf], "return [1e308, -float('inf')]"),
    ("return [float('nan'), 0.5]", [math.nan, 0.5], "return [0.0, 0.5]"),
    ("return [True, 0.5]", [True, 0.5], "return [1, 0.5]"),
])  # fmt: skip
def test_floats_are_compared_where_they_stand(tmp_path: Path, body: str, want: object, wrong: str) -> None:
    correct = f"def f(x):\n    {body}\n"
    tasks = imported(tmp_path, line("f", "def f(x):\n    return 'x'\n", correct, [[[1], want]]))
    assert judged(tasks, correct)
    assert judged(tasks, tasks.checks.get("quixbugs/f/original").known_bad[1]["f.py"])  # its only answer
    assert not judged(tasks, f"def f(x):\n    {wrong}\n")


NAMES = ["aux", "setup", "conftest", "naïve", "con", "nul", "com1", "PRN", "__main__", "sitecustomize", "test", "tests",
         "test_sum", "json", "heapq", "_private", "ﬁnd", "x" * 99, "größe", "services", "pytest"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_whatever_a_function_is_called_its_repair_can_be_handed_in(tmp_path: Path, name: str) -> None:
    tasks = imported(tmp_path, line(name))
    (fixture,) = tasks.fixtures
    (check,) = tasks.checks
    assert admission_fault(fixture.base_tree, check.reference, fixture.allowed_globs) is None
    with Bench() as bench:
        assert look(bench, check, 1).sound


def test_line_endings_and_marks_are_no_part_of_a_program(tmp_path: Path) -> None:
    text = "def total(xs):{0}    found = 0{0}    for x in xs:{0}        found {1}= x{0}    return found{0}"
    for ending, mark in (("\r\n", ""), ("\r", ""), ("\r\n", "\ufeff"), ("\n", "\ufeff")):
        one = line(buggy=mark + text.format(ending, "-"), correct=mark + text.format(ending, "+"))
        tasks = imported(tmp_path, one, ending="\r\n")
        (fixture,) = tasks.fixtures
        assert fixture.base_tree == {"total.py": text.format("\n", "-")}
        assert judged(tasks, text.format("\n", "+"))


@pytest.mark.parametrize(("changed", "reason"), [
    ("    return sum(xs)  # \u200b\n", "invisible_character"),
    ("    return sum(xs)\x0c\n", "control_character"),
    ("    return sum(xs)\n" + "    # more\n" * 2100, "too_many_lines"),
])  # fmt: skip
def test_a_repair_that_nobody_could_hand_in_is_refused_with_its_reason(
    tmp_path: Path, changed: str, reason: str
) -> None:
    with pytest.raises(BadProgram, match=f"line 1: the right repair would be refused.*{reason}"):
        imported(tmp_path, line(correct="def total(xs):\n" + changed))


def test_what_cannot_be_handed_in_is_not_sound(tmp_path: Path) -> None:
    (check,) = imported(tmp_path, line()).checks
    moved = {"aux.py": check.reference["total.py"]}
    base = {"aux.py": check.known_bad[0]["total.py"]}
    denied = replace(check, reference=moved, known_bad=(base,))
    with Bench() as bench:
        found = look(bench, denied, 1)
    assert (found.sound, found.reference_passes) == (False, 1)
    assert "path_denied" in found.deviation()


@pytest.mark.timeout(30)
@pytest.mark.parametrize(("name", "args"), [
    ("to_base", [-1, -1]), ("to_base", [5, 1]), ("wrap", ["x", -1]), ("wrap", ["x", 0]), ("gcd", [None, "x"]),
    ("kth", [3, {}]), ("knapsack", [1.5, [1]]), ("powerset", [None]), ("shunting_yard", [[[1]]]), ("sqrt", [-1, 0]),
])  # fmt: skip
def test_a_known_name_with_arguments_of_another_program_keeps_its_cases(
    tmp_path: Path, name: str, args: list[Any]
) -> None:
    texts = {"buggy": f"def {name}(*args):\n    return 0\n", "correct": f"def {name}(*args):\n    return 'w'\n"}
    (check,) = imported(tmp_path, line(name, **texts, cases=[[args, "w"]])).checks
    assert (check.evidence, len(check.fixed_cases)) == ("E2", 1)


def nested(depth: int) -> Any:
    return 1 if depth == 0 else [nested(depth - 1)]


BAD = {
    "a lone surrogate in an answer": (json.dumps(line(cases=[[[1], "\ud800"]])), "answer of case 1.*surrogate"),
    "a lone surrogate in a source": (
        json.dumps(line(correct="def total(xs): return '\udc00'\n")),
        "'correct'.*surrogate",
    ),
    "a lone surrogate in a name": (json.dumps(line("\ud800")), "'name'.*surrogate"),
    "twenty levels": (json.dumps(line(cases=[[[1], 2], [nested(20), 1]])), "arguments of case 2.*nested deeper"),
    "too many items": (json.dumps(line(cases=[[[list(range(120_000))], 1]])), "arguments of case 1.*nodes"),
    "a long text": (json.dumps(line(cases=[[[1], "x" * 2_000_000]])), "answer of case 1.*longer"),
    "brackets": ("[" * 100_000, "nested deeper"),
    "braces": ('{"a":' * 100_000, "nested deeper"),
    "a huge int": ('{"name": ' + "9" * 5000 + "}", "not JSON"),
    "not UTF-8": (None, "not UTF-8"),
    "a NUL": ('{"name": "a\0b"}', "not JSON"),
    "a NUL in a source": (json.dumps(line(correct="def total(xs):\n    return sum(xs)\0\n")), "line 1: "),
    "a syntax error": (json.dumps(line(correct="def total(xs:\n")), "does not load.*SyntaxError"),
    "another function": (json.dumps(line(correct="def other(xs):\n    return sum(xs)\n")), "does not load.*total"),
    "a keyword": (json.dumps(line("class")), "name of a function"),
    "a long name": (json.dumps(line("x" * 101)), "name of a function"),
    "a number": ("12", "an object is needed"),
    "null": ("null", "an object is needed"),
    "a name that is a number": (json.dumps({**line(), "name": 3}), "'name' must be text"),
    "cases as an object": (json.dumps({**line(), "cases": {"1": 2}}), "'cases' must be"),
    "a case of three": (json.dumps({**line(), "cases": [[1, 2, 3]]}), "'cases' must be"),
    "one key twice": ('{"name": "a", "name": "b"}', "same key twice"),
    "two answers to one question": (json.dumps(line(cases=[[[1], 2], [[3], 4], [[1], 3]])), "case 3.*case 1"),
}


@pytest.mark.parametrize("what", BAD)
def test_every_bad_line_is_one_message_with_file_and_line(tmp_path: Path, what: str) -> None:
    text, message = BAD[what]
    path = tmp_path / "tasks.jsonl"
    raw = b'{"name": "\xff"}' if text is None else text.encode()
    path.write_bytes(json.dumps(line("fine")).encode() + b"\n\n" + raw)
    with pytest.raises(UserError, match=rf"tasks\.jsonl, line 3: .*{message.removeprefix('line 1: ')}") as caught:
        load_quixbugs(path)
    assert caught.value.do
    assert len(str(caught.value)) < 600


def test_what_is_no_file_of_programs_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_bytes(b"")
    (tmp_path / "mark.jsonl").write_bytes(b"\xef\xbb\xbf\n\n")
    for name in ("empty.jsonl", "mark.jsonl", ".", "absent.jsonl", "nul\0.jsonl"):
        with pytest.raises(UserError) as caught:
            load_quixbugs(tmp_path / name)
        assert str(tmp_path) in str(caught.value)
        assert caught.value.do
    (tmp_path / "marked.jsonl").write_bytes(b"\xef\xbb\xbf" + json.dumps(line()).encode())
    assert len(load_quixbugs(tmp_path / "marked.jsonl").fixtures) == 1


def test_a_run_without_training_tasks_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps(line()))
    for sections in ({}, {"dispatch": {"updates": 0}}, {"model": {"base": "x"}}):
        with pytest.raises(UserError, match="none of its 1 tasks is for training"):
            materials.build_task_set(load(None, tasks={"source": str(path)}, **sections))
    measuring: dict[str, Any] = {"model": {"base": "x"}, "coldstart": {"max_steps": 0}, "dispatch": {"updates": 0}}
    assert materials.build_task_set(load(None, tasks={"source": str(path)}, **measuring)).fixtures
    path.write_text("{")
    with pytest.raises(UserError, match="line 1"):
        materials.build_task_set(load(None, tasks={"source": str(path)}))
