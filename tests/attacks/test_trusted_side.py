"""What arrives from a candidate cannot break, mislead or hold up the process that judges it."""

import contextlib
import json
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.tasks import answers, comparators, values
from services.tasks.comparators import Outcome
from tests.attacks.rows_channel import TEXTS

COMPARATORS = ["exact", "sequence", "multiset", "set", "abs:0.5", "rel:1e-9", "exact+args", "multiset+args"]
NAN = float("nan")

TAGGED = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.text(max_size=4),
        st.builds(lambda digits: {"i": digits}, st.sampled_from(["5", "-0", "05", "1e9", "", "9" * 4301, "\u0665"])),
        st.builds(lambda text: {"f": text}, st.sampled_from(["nan", "inf", "0x1p+9999", "0x1.8p+1", "-0x0p+0", "1.5"])),
        st.builds(lambda name: {"e": name}, st.sampled_from(["ValueError", "os.system", "KeyboardInterrupt", ""])),
        st.builds(lambda number: {"n": number}, st.sampled_from(["0", "-1", "999999999999"])),
        st.builds(lambda pair: {"h": pair}, st.lists(st.text(max_size=2), max_size=3)),
        st.builds(lambda text: {"b": text}, st.text(max_size=4)),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.builds(lambda tag, body: {tag: body}, st.sampled_from("tszdgx"), st.lists(inner, max_size=4)),
        st.builds(lambda pairs: {"d": [list(pair) for pair in pairs]}, st.lists(st.tuples(inner, inner), max_size=3)),
        st.builds(lambda a, b: {"g": [[["Node", [a]]], b]}, inner, inner),
    ),
    max_leaves=12,
)  # fmt: skip
EXPECTED = [5, -0.0, 1.5, NAN, "", [1, 2, 2], (1, [2.0, True]), {1, 2}, {"a": [1]}, None, [[1], [1.0], [True]], b"x"]


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(COMPARATORS),
    st.sampled_from("rxu?"),
    st.one_of(TAGGED.map(json.dumps), st.text(max_size=40), st.sampled_from(sorted(TEXTS.values()))),
    st.sampled_from(EXPECTED),
)
@example("multiset", "r", json.dumps([{"f": "nan"}, {"s": [{"f": "nan"}, {"f": "nan"}]}]), [1, 2, 2])
def test_no_reply_does_more_than_be_refused(comparator: str, kind: str, text: str, expected: object) -> None:
    try:
        got = answers.outcome_of(kind, text, comparator)
    except values.ValueCodecError:
        return
    assert comparators.agree(comparator, Outcome(value=expected, args_after=(1,)), got) in (True, False)


@pytest.mark.parametrize("text", [TEXTS[name] for name in TEXTS if name not in ("float for int", "number as text")])
def test_texts_of_another_form_are_undecodable(text: str) -> None:
    try:
        value = values.loads(text)
    except values.Undecodable:
        return
    assert type(value) in (bytes, str)  # a pickle stays bytes, a tag of another format stays text
    assert value != 5


WIDE = [
    json.dumps([[{"i": str(n)}] for n in range(30_000)]),
    json.dumps({"s": [{"i": str(n * (2**61 - 1))} for n in range(1, 4_000)]}),
    json.dumps({"d": [[{"i": str(n * (2**61 - 1))}, None] for n in range(1, 4_000)]}),
    json.dumps({"s": [{"f": "nan"}] * 20_000}),
    json.dumps([{"i": "9" * 4300}] * 200),
    json.dumps(["x" * 1000] * 900),
    "[" * 500_000,
    json.dumps({"t": [{"t": [{"t": [{"t": [None] * 9}] * 9}] * 9}] * 9}),
]


@pytest.mark.parametrize("comparator", COMPARATORS)
def test_wide_replies_cost_the_trusted_side_little(comparator: str) -> None:
    """CPU time, not wall time, with room to spare: what is quadratic in a reply takes minutes."""
    started = time.process_time()
    for text in WIDE:
        with contextlib.suppress(values.ValueCodecError):
            got = answers.outcome_of("r", text, comparator)
            comparators.agree(comparator, Outcome(value=got.value, args_after=(1,)), got)
    assert time.process_time() - started < 15
