"""Protects the value format: exact round trips, and refusal of everything that is not exactly an encoding."""

import contextlib
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.tasks import comparators, values
from services.tasks.comparators import Outcome

TEXT = st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=8)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats()
    | TEXT
    | st.binary(max_size=8)
    | st.sampled_from(values.EXCEPTION_NAMES).map(values.ExceptionName)
)
HASHABLE = st.none() | st.integers() | TEXT | st.floats(allow_nan=False) | st.tuples(st.integers(), TEXT)
PLAIN = st.recursive(
    SCALARS | st.sets(HASHABLE, max_size=4) | st.frozensets(HASHABLE, max_size=4),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(HASHABLE, inner, max_size=4)
    ),
    max_leaves=20,
)


@given(PLAIN)
@settings(max_examples=300, deadline=None)
def test_round_trip_keeps_value_and_types(value: object) -> None:
    back = values.loads(values.dumps(value))
    assert comparators.agree("exact", Outcome(value), Outcome(back))
    assert values.dumps(back) == values.dumps(value)


@given(st.integers(-(10**400), 10**400))
def test_ints_beyond_machine_words(value: int) -> None:
    back = values.loads(values.dumps(value))
    assert type(back) is int
    assert back == value


@pytest.mark.parametrize("value", [-0.0, 0.0, math.inf, -math.inf, 5e-324, 1.7976931348623157e308, 0.1])
def test_floats_to_the_bit(value: float) -> None:
    assert values.loads(values.dumps(value)).hex() == value.hex()


def test_digit_limit_on_both_sides() -> None:
    widest = 10**4300 - 1
    assert values.loads(values.dumps(widest)) == widest
    for big in (10**4300, -(10**4300), 1 << 10_000_000):
        with pytest.raises(values.Unencodable, match="4300 digits"):
            values.dumps(big)
    with pytest.raises(values.Undecodable, match="4300 digits"):
        values.loads('{"i":"' + "9" * 4301 + '"}')


class Sly(list[int]):
    """A subclass: its behaviour is not its value."""


class IntSubclass(int):
    pass


@pytest.mark.parametrize("value", [Sly([1]), IntSubclass(3), object(), print, 1j, range(3), iter([1]), bytearray(b"a")])
def test_foreign_types_are_refused(value: object) -> None:
    with pytest.raises(values.Unencodable):
        values.encode([value])


def test_generator_is_read_only_where_asked() -> None:
    with pytest.raises(values.Unencodable):
        values.encode(i for i in range(3))
    assert values.decode(values.encode((i for i in range(3)), drain=True)) == [0, 1, 2]
    with pytest.raises(values.Unencodable, match="nodes"):
        values.encode((i for i in iter(int, 1)), drain=True)  # endless


def test_depth_and_width_caps_on_both_sides() -> None:
    deep: list[object] = []
    for _ in range(values.MAX_DEPTH):
        deep = [deep]
    assert values.loads(values.dumps(deep)) == deep
    with pytest.raises(values.Unencodable, match="deeper"):
        values.encode([deep])
    cyclic: list[object] = []
    cyclic.append(cyclic)
    with pytest.raises(values.Unencodable, match="deeper"):
        values.encode(cyclic)
    with pytest.raises(values.Undecodable, match="deeper"):
        values.loads("[" * 18 + "]" * 18)
    with pytest.raises(values.Undecodable, match="deeper"):
        values.loads("[" * 400_000 + "]" * 400_000)
    with pytest.raises(values.Unencodable, match="nodes"):
        values.encode([None] * values.MAX_NODES)
    with pytest.raises(values.Undecodable, match="nodes"):
        values.loads("[" + "null," * values.MAX_NODES + "null]")
    with pytest.raises(values.Undecodable, match="longer"):
        values.loads('"' + "x" * values.MAX_CHARS + '"')


MALFORMED = [
    r"1",
    r"1.5",
    r"NaN",
    r"Infinity",
    r"-Infinity",
    r"[NaN]",
    r"nul",
    r"'a'",
    r"[1]x",
    r"{}",
    r'{"q":"1"}',
    r'{"i":"1","i":"2"}',
    r'{"i":"1","f":"0x1p+0"}',
    r'{"i":1}',
    r'{"i":"1.0"}',
    r'{"i":"1_0"}',
    r'{"i":"01"}',
    r'{"i":"-0"}',
    r'{"i":"+1"}',
    r'{"i":"\u0661"}',
    r'{"i":"\u00201"}',
    r'{"i":"1\n"}',
    r'{"i":""}',
    r'{"f":"NaN"}',
    r'{"f":"0.5"}',
    r'{"f":"0x1p+9999"}',
    r'{"f":"\u0020inf"}',
    r'{"f":"infinity"}',
    r'{"f":"0x1p+0\n"}',
    r'{"f":null}',
    r'{"b":"!"}',
    r'{"b":"YQ"}',
    r'{"b":"\u00e9"}',
    r'{"b":[]}',
    r'{"e":"Verdict"}',
    r'{"e":["ValueError"]}',
    r'"\ud800"',
    r'{"l":[]}',
    r'{"t":"ab"}',
    r'{"t":[{"i":"1"}}',
    r'{"s":[[]]}',
    r'{"s":[{"i":"1"},{"i":"1"}]}',
    r'{"s":[{"i":"1"},{"f":"0x1p+0"}]}',
    r'{"s":[true,{"i":"1"}]}',
    r'{"d":[[null]]}',
    r'{"d":[null]}',
    r'{"d":[[[],null]]}',
    r'{"d":[[null,null],[null,null]]}',
    r'{"d":{"a":null}}',
]


@pytest.mark.parametrize("text", ["", *MALFORMED])
def test_malformed_texts_are_refused(text: str) -> None:
    with pytest.raises(values.Undecodable):
        values.loads(text)


def test_invalid_utf8_and_surrogates() -> None:
    with pytest.raises(values.Undecodable):
        values.loads(b'"\xff"')
    with pytest.raises(values.Unencodable, match="surrogate"):
        values.encode("\ud800")


@given(st.text(max_size=40) | st.binary(max_size=40))
@settings(max_examples=300, deadline=None)
def test_arbitrary_input_is_a_value_or_undecodable(text: str | bytes) -> None:
    try:
        back = values.loads(text)
    except values.Undecodable:
        return
    assert values.loads(values.dumps(back)) is not NotImplemented


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("iftszdbex"), inner, max_size=2),
)


@given(JSON)
@settings(max_examples=200, deadline=None)
def test_arbitrary_json_never_raises_anything_else(node: object) -> None:
    with contextlib.suppress(values.Undecodable):
        values.loads(json.dumps(node))


def test_members_that_collide_cannot_cost_the_reader_quadratic_time() -> None:
    colliding = ['{"i":"' + str((2**61 - 1) * n) + '"}' for n in range(1, 20_000)]
    tuples = ['{"t":[' + text + "]}" for text in colliding]
    for members in (colliding, tuples):
        with pytest.raises(values.Undecodable, match="collide"):
            values.loads('{"s":[' + ",".join(members) + "]}")
        with pytest.raises(values.Undecodable, match="collide"):
            values.loads('{"d":[' + ",".join(f"[{text},null]" for text in members) + "]}")
    honest = {float(n) for n in range(-99, 99)} | {"a", None, (1, 2)}
    assert values.loads(values.dumps(honest)) == honest


def test_set_text_does_not_depend_on_insertion() -> None:
    assert values.dumps({"b", "a", "c"}) == values.dumps({"c", "b", "a"})


def test_exception_names_follow_the_bases() -> None:
    class Own(KeyError):
        pass

    class Impostor(Exception):
        pass

    Impostor.__name__ = "ZeroDivisionError"
    assert values.exception_name(Own()) == "KeyError"
    assert values.exception_name(Impostor()) == "Exception"
    assert values.decode(values.encode(ValueError("x"))) == values.ExceptionName("ValueError")
    with pytest.raises(values.Unencodable):
        values.ExceptionName("Verdict")


def test_file_stands_alone() -> None:
    """A bare interpreter (no site, no path of ours) can run the text of the file: the sandbox does."""
    script = Path(values.__file__).read_text(encoding="utf-8") + '\nprint(dumps(loads(\'{"t":[{"i":"7"}]}\')))\n'
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script],
        capture_output=True,
        text=True,
        timeout=30,
        env={},
        cwd="/",
        check=True,
    )
    assert ran.stdout.strip() == '{"t":[{"i":"7"}]}'
