"""Protects graphs as values: exact round trips, one text per graph, and the same text from the untrusted side."""

from __future__ import annotations

import random
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.runtime.jail import encoder
from services.tasks import objects, values
from services.tasks.comparators import Outcome, agree
from services.tasks.fixture import Example, ObjectClass
from services.tasks.objects import linked, node_class

NODE = ObjectClass("Node", ("value", "links"))
CELL = ObjectClass("Cell", ("head", "tail"))
CLASSES = (NODE, CELL)
SCHEMA = objects.schema(CLASSES)
Node, Cell = (node_class(kind.name, kind.fields) for kind in CLASSES)


@st.composite
def graphs(draw: st.DrawFn, dicts: bool = True) -> Any:
    """A value over up to four nodes whose fields hold plain values and each other: shared, cyclic, in containers."""
    nodes = [draw(st.sampled_from((Node, Cell)))() for _ in range(draw(st.integers(0, 4)))]
    plain: st.SearchStrategy[Any] = (
        st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.text(max_size=3)
    )
    key: st.SearchStrategy[Any] = st.integers(0, 3) | st.text(max_size=2)
    if nodes:
        one = st.sampled_from(nodes)
        plain, key = plain | one, key | one | st.tuples(one, one) | st.tuples(one, st.integers(0, 2))

    def inner(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        lists = st.lists(leaves, max_size=3)
        both = lists | lists.map(tuple)
        return both | st.dictionaries(key, leaves, max_size=3) if dicts else both

    value = st.recursive(plain, inner, max_leaves=6)
    for node in nodes:
        for field in node.__node_fields__:
            setattr(node, field, draw(value))
    return draw(value)


class FarSide:
    """The worker's half on this side of the wall: what it rebuilds from a request, what it writes of an answer."""

    def __init__(self) -> None:
        self.space = encoder.Space({"names": values.EXCEPTION_NAMES, "handles": ()})
        run = {"objects": [(kind.name, kind.fields, "") for kind in CLASSES], "handles": (), "errors": ()}
        self.space.declare(run, random)  # any module: the classes are made beside it

    def rebuilt(self, value: Any) -> Any:
        pack = objects.packer(CLASSES)
        assert pack is not None
        return self.space.rebuild(*pack(value))

    def text(self, value: Any) -> str:
        return encoder.Encoder(self.space).answer(value)


@settings(max_examples=80, deadline=None)
@given(graphs())
def test_the_worker_rebuilds_a_graph_and_writes_exactly_its_text(value: Any) -> None:
    far = FarSide()
    assert far.text(far.rebuilt(value)) == values.dumps(value)


@settings(max_examples=80, deadline=None)
@given(graphs())
def test_round_trip_keeps_the_graph(value: Any) -> None:
    text = values.dumps(value)
    back = values.loads(text, objects=SCHEMA)
    assert values.dumps(back) == text
    assert agree("exact", Outcome(value), Outcome(back))
    assert values.dumps(deepcopy(value)) == text
    assert {id(node) for node in linked(back)}.isdisjoint(id(node) for node in linked(value))


@settings(max_examples=80, deadline=None)
@given(graphs(dicts=False), graphs(dicts=False), st.booleans())
def test_equal_texts_mean_isomorphic_graphs(left: Any, right: Any, copied: bool) -> None:
    right = deepcopy(left) if copied else right
    assert agree("exact", Outcome(left), Outcome(right)) == (plain_text(left) == plain_text(right))


def plain_text(value: Any) -> str:
    """Text in which -0.0 is 0.0, as the comparison sees it."""
    return values.dumps(value).replace('"-0x0.0p+0"', '"0x0.0p+0"')


@settings(max_examples=80, deadline=None)
@given(graphs(), st.data())
def test_any_change_of_one_field_is_seen(value: Any, data: st.DataObject) -> None:
    nodes = linked(value)
    if not nodes:
        return
    other = deepcopy(value)
    node = data.draw(st.sampled_from(linked(other)))
    setattr(node, data.draw(st.sampled_from(node.__node_fields__)), "changed!")
    assert values.dumps(other) != values.dumps(value)
    assert not agree("exact", Outcome(value), Outcome(other))


@settings(max_examples=80, deadline=None)
@given(graphs(), graphs())
def test_an_answer_with_its_arguments_shares_one_table(value: Any, extra: Any) -> None:
    args = (extra, *linked(value)[:2])
    far = FarSide()
    theirs, after = far.rebuilt((value, args))
    text = encoder.Encoder(far.space).answer(theirs, after)
    assert text == values.to_text(values.encode_answer(value, args))
    back, args_back = values.loads(text, objects=SCHEMA)
    numbers = {id(node): place for place, node in enumerate(linked((value, args)))}
    got = {id(node): place for place, node in enumerate(linked((back, args_back)))}
    assert [numbers[id(node)] for node in args[1:]] == [got[id(node)] for node in args_back[1:]]


def test_identity_between_arguments_and_answer_is_part_of_args() -> None:
    node = Node(1)
    same = Outcome(node, args_after=(node,))
    other = Outcome(Node(1), args_after=(Node(1),))
    assert agree("exact+args", same, deepcopy_outcome(same))
    assert not agree("exact+args", same, other)
    assert agree("exact", same, other)


def deepcopy_outcome(outcome: Outcome) -> Outcome:
    value, after = deepcopy((outcome.value, outcome.args_after))
    return Outcome(value, args_after=after)


def chain(length: int) -> Any:
    head = None
    for number in reversed(range(length)):
        head = Cell(number, head)
    return head


def test_a_long_list_is_no_deep_value() -> None:
    far, head = FarSide(), chain(1_000)
    text = values.dumps((head,))
    assert far.text(far.rebuilt((head,))) == text
    (back,) = values.loads(text, objects=SCHEMA)
    assert [getattr(node, "head") for node in linked(back)] == list(range(1_000))  # noqa: B009 - made at run time
    assert agree("exact", Outcome(head), Outcome(deepcopy(back)))
    assert not agree("exact", Outcome(head), Outcome(chain(999)))
    assert repr(head) == "Cell(0,Cell(1,Cell(2,Cell(...))))"
    ring = Node(1)
    ring.links = [ring, {ring: (ring,)}]  # type: ignore[attr-defined]  # a declared field
    assert len(repr([ring])) < 100


def test_shared_is_not_copied_and_cycles_end() -> None:
    shared = Node(1)
    assert values.dumps([shared, shared]) != values.dumps([Node(1), Node(1)])
    assert not agree("exact", Outcome([shared, shared]), Outcome([Node(1), Node(1)]))
    ring, pair = Node(0), (Node(0), Node(0))
    ring.links = ring  # type: ignore[attr-defined]  # a declared field
    pair[0].links, pair[1].links = pair[1], pair[0]  # type: ignore[attr-defined]  # a declared field
    assert values.dumps(ring) != values.dumps(pair[0])
    assert not agree("exact", Outcome(ring), Outcome(pair[0]))


def test_sets_hold_only_nodes_that_were_met_before() -> None:
    node = Node(1)
    with pytest.raises(values.Unencodable, match="first met in a set"):
        values.dumps({node})
    assert values.loads(values.dumps([node, {node}]), objects=SCHEMA)[1] != set()
    kept = [node, {node, Node.__name__}]
    assert agree("exact", Outcome(kept), Outcome(deepcopy(kept)))
    far = FarSide()
    with pytest.raises(encoder.Refused):
        far.text(far.rebuilt([{node}])[:1])
    answer = Outcome({node}, args_after=(node, Node(1)))
    assert agree("exact+args", answer, deepcopy_outcome(answer))
    assert not agree("exact+args", answer, Outcome({answer.args_after[1]}, args_after=answer.args_after))  # type: ignore[index]


def test_dicts_by_nodes_are_matched_by_identity_where_it_is_known() -> None:
    one, two = Node(1), Node(1)
    args = (one, two)
    want = Outcome({one: "a", (one, two): "b"}, args_after=args)
    assert agree("exact+args", want, Outcome({(one, two): "b", one: "a"}, args_after=args))
    assert not agree("exact+args", want, Outcome({(two, one): "b", one: "a"}, args_after=args))
    assert agree("exact", Outcome({one: "a"}), Outcome({two: "a"}))


MALFORMED = [
    '{"g":[]}', '{"g":[[],{"n":"0"}]}', '{"g":[[["Node",[null]]],{"n":"0"}]}', '{"g":[[["Other",[null,null]]],null]}',
    '{"g":[[["Node",[null,{"n":"1"}]]],{"n":"0"}]}', '{"g":[[["Node",[null,null]]],{"n":"-0"}]}',
    '{"g":[[["Node",[null,null]]],{"n":"00"}]}', '{"g":[[["Node",[null,null]]],{"n":0}]}', '{"n":"0"}',
    '[{"g":[[["Node",[null,null]]],{"n":"0"}]}]', '{"g":[[["Node",{"a":null}]],null]}', '{"g":{"a":null}}',
    '{"g":[[["Node",[null,null]]],{"s":[{"n":"0"},{"n":"0"}]}]}',
]  # fmt: skip


@pytest.mark.parametrize("text", MALFORMED)
def test_malformed_graphs_are_refused(text: str) -> None:
    with pytest.raises(values.Undecodable):
        values.loads(text, objects=SCHEMA)
    with pytest.raises(values.Undecodable):
        values.loads(text)


def test_caps_count_nodes_on_both_sides() -> None:
    wide = [Node() for _ in range(40_000)]
    with pytest.raises(values.Unencodable, match="nodes"):
        values.dumps(wide)
    far = FarSide()
    with pytest.raises(encoder.Refused):
        far.text(far.rebuilt(wide))
    row = '["Node",[null,null]],' * 40_000
    with pytest.raises(values.Undecodable, match="nodes"):
        values.loads('{"g":[[' + row.rstrip(",") + "],null]}", objects=SCHEMA)


def test_undeclared_classes_are_refused_on_both_sides() -> None:
    pack = objects.packer((NODE,))
    assert pack is not None
    with pytest.raises(values.Unencodable, match="'Cell'"):
        pack([Cell()])
    with pytest.raises(encoder.Refused):
        FarSide().text(type("Node", (), {"value": 1, "links": None})())
    with pytest.raises(TypeError, match="value, links"):
        Node(1, 2, 3)


def test_examples_with_nodes_are_stored_as_they_are() -> None:
    example = Example((chain(3), {"k": Node(1)}), chain(2))
    back = Example.from_json(example.to_json(), SCHEMA)
    assert back.to_json() == example.to_json()
    with pytest.raises(values.Undecodable):
        Example.from_json(example.to_json())
