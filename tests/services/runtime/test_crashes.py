"""Protects the way out of a crash loop: a record that has stopped the process often enough is set aside, no other."""

from services.runtime.core import Position
from services.runtime.crashes import MAX_REMEMBERED, CrashMemory

BAD, OTHER = Position("t", 1, 7), Position("t", 1, 8)


def crash(path, *positions):
    return CrashMemory(path, 3).crashed(positions or (BAD,), RuntimeError("boom"))


def test_three_crashes_on_one_record_quarantine_it(tmp_path):
    path = tmp_path / "c.json"
    assert [crash(path) for _ in range(3)] == [1, 2, 3]
    memory = CrashMemory(path, 3)
    assert memory.quarantined(BAD)
    assert not memory.quarantined(OTHER)


def test_two_bad_records_cannot_shield_each_other(tmp_path):
    """Which one is met first at a start depends on the order of partitions; each keeps its own count."""
    path = tmp_path / "c.json"
    for _ in range(2):
        crash(path, BAD), crash(path, OTHER)
    assert crash(path, BAD) == 3
    memory = CrashMemory(path, 3)
    assert memory.quarantined(BAD)
    assert not memory.quarantined(OTHER)


def test_a_crash_counts_against_every_record_of_its_group(tmp_path):
    path = tmp_path / "c.json"
    for _ in range(3):
        crash(path, BAD, OTHER)
    assert all(CrashMemory(path, 3).quarantined(one) for one in (BAD, OTHER))


def test_a_commit_past_the_record_forgets_it(tmp_path):
    """Else a fresh log with the same offsets would lose an innocent record."""
    path = tmp_path / "c.json"
    for _ in range(3):
        crash(path)
    memory = CrashMemory(path, 3)
    memory.committed("t", 1, 7)
    assert memory.quarantined(BAD), "committed up to the record, not past it"
    memory.committed("t", 1, 8)
    assert not memory.quarantined(BAD)
    assert not path.exists()


def test_what_is_remembered_is_bounded():
    memory = CrashMemory(None, 1)
    memory.crashed([Position("t", 0, n) for n in range(MAX_REMEMBERED + 5)], RuntimeError())
    assert not memory.quarantined(Position("t", 0, 4))
    assert memory.quarantined(Position("t", 0, 5))


def test_without_a_file_nothing_outlives_the_process():
    memory = CrashMemory(None, 1)
    assert memory.crashed([BAD], RuntimeError()) == 1
    assert not CrashMemory(None, 1).quarantined(BAD)


def test_a_torn_file_is_no_obstacle(tmp_path):
    path = tmp_path / "c.json"
    path.write_text('{"topic": ')
    assert not CrashMemory(path, 1).quarantined(BAD)
