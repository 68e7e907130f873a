"""A schema cannot change without history, and everything ever released keeps decoding."""

import itertools

import pytest

from schemas import ids, topics
from schemas.codec import decode
from schemas.evolution import EvolutionError, all_types, check_step, columns, example, golden_path, load_history, same

TYPES = all_types()


@pytest.mark.parametrize("key", TYPES)
def test_the_present_form_is_the_last_in_history(key):
    forms = load_history().get(key)
    assert forms, f"{key} is not in schemas/history.json: run `python -m schemas.evolution`"
    assert forms[-1]["fingerprint"] == TYPES[key].fingerprint, (
        f"{key} changed without history: run `python -m schemas.evolution` (it refuses illegal changes)"
    )
    assert forms[-1]["columns"] == columns(TYPES[key])
    for old, new in itertools.pairwise(forms):
        check_step(key, old["columns"], new["columns"])


def test_nothing_released_was_dropped():
    assert set(load_history()) <= set(TYPES)


@pytest.mark.parametrize("key", TYPES)
def test_every_golden_example_still_decodes(key):
    kind = TYPES[key]
    forms = load_history()[key]
    for minor, form in enumerate(forms):
        back = decode(kind.cls, golden_path(key, minor).read_bytes())
        expected = example(kind)
        for name, _, _ in form["columns"]:
            assert repr(getattr(back, name)) == repr(getattr(expected, name))
    assert same(back, expected)


def test_only_nullable_growth_is_legal():
    old = [["a", "string", "required"], ["b", "int64", "null"]]
    check_step("x", old, [*old, ["c", "int64", "null"]])
    illegal = (
        [*old, ["c", "int64", "required"]],
        old[:1],
        [old[1], old[0]],
        [["a", "int64", "required"], old[1]],
        [["z", "string", "required"], old[1]],
        [old[0], ["b", "int64", "required"]],
    )
    for new in illegal:
        with pytest.raises(EvolutionError):
            check_step("x", old, new)


def test_grouped_topics_share_key_and_partitions():
    for topic in topics.ALL:
        assert topic.name.endswith(f".v{topic.record.TYPE.version}")
        assert topic.name.startswith(topic.record.TYPE.name)
        assert topic.key in {f.name for f in topic.record.TYPE.fields}
        if topic.partition_class == topics.GROUPED:
            assert topic.key == "group_id"
            assert topic.partitions(12) == 12
        else:
            assert topic.partitions(12) == 1
            assert topics.dead_letter(topic) is None


def test_ids_are_deterministic_and_parse_back():
    trial = ids.trial_id(ids.group_id("demo", 12), 3)
    assert trial == "demo/00000012/3"
    assert ids.parse_trial(trial) == ids.TrialRef("demo", 12, 3)
    assert ids.operation_id(ids.invocation_id(trial, 1, 2), 0) == "demo/00000012/3.1.2.0"
    for bad in ("demo/12/3", "demo/00000012", "../00000012/3", ""):
        with pytest.raises(ids.BadId):
            ids.parse_trial(bad)
