"""Protects the way out of a crash loop: a record that killed the process three times is set aside, no other."""

from services.runtime.core import Position
from services.runtime.crashes import CrashMemory

BAD = Position("t", 1, 7)


def crash(path, position=BAD):
    return CrashMemory(path, 3).crashed(position, RuntimeError("boom"))


def test_three_crashes_on_one_record_quarantine_it(tmp_path):
    path = tmp_path / "c.json"
    assert [crash(path) for _ in range(3)] == [1, 2, 3]
    memory = CrashMemory(path, 3)
    assert memory.quarantined(BAD)
    assert not memory.quarantined(Position("t", 1, 8))


def test_another_record_starts_at_one(tmp_path):
    path = tmp_path / "c.json"
    crash(path), crash(path)
    assert crash(path, Position("t", 1, 8)) == 1
    assert not CrashMemory(path, 3).quarantined(BAD)


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


def test_without_a_file_nothing_is_ever_set_aside():
    memory = CrashMemory(None, 1)
    assert memory.crashed(BAD, RuntimeError()) == 1


def test_a_torn_file_is_no_obstacle(tmp_path):
    path = tmp_path / "c.json"
    path.write_text('{"topic": ')
    assert not CrashMemory(path, 1).quarantined(BAD)
