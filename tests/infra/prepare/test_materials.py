"""Protects what a run is prepared from: training without certificates is refused, leak canaries are new every time."""

from pathlib import Path

import pytest

from infra.prepare import materials
from services.runtime.errors import UserError
from services.runtime.settings import load
from services.tasks import certificates
from services.tasks.certificates import Certificates


def certified(**sections) -> tuple[bytes, str]:
    settings = load(None, **sections)
    return materials.certified(settings, materials.build_task_set(settings))


def test_another_catalogue_is_refused_unless_told() -> None:
    with pytest.raises(UserError, match="not certified"):
        certified(tasks={"seed": 1})
    certified(tasks={"seed": 1, "allow_uncertified": True})
    certified(tasks={"seed": 1}, dispatch={"updates": 0})  # nothing is trained on


def test_a_named_file_replaces_the_shipped_one(tmp_path: Path) -> None:
    named = tmp_path / "certificates.json"
    with pytest.raises(UserError, match="cannot be read"):
        certified(tasks={"certificates": str(named)})
    named.write_bytes(b"{}")
    with pytest.raises(UserError, match="format"):
        certified(tasks={"certificates": str(named)})
    named.write_bytes(Certificates().document())
    with pytest.raises(UserError, match="no certificate"):
        certified(tasks={"certificates": str(named)})
    named.write_bytes(certificates.shipped())
    assert certified(tasks={"certificates": str(named)})[1] == ""


def test_leak_canaries_have_new_secrets_every_time_and_no_part_in_the_cold_start() -> None:
    from services.tasks import leaks
    from services.trainer.coldstart_recipe import digest

    settings = load(None, tasks={"leak_canaries": 2})
    first, second = materials.build_task_set(settings), materials.build_task_set(settings)
    plain = materials.build_task_set(load(None))
    assert [fixture.family for fixture in first.split(leaks.SPLIT)] == ["leaks", "leaks"]
    assert first.digest != second.digest
    assert first.split("train") == plain.split("train")
    assert digest(settings, first) == digest(settings, second) == digest(load(None), plain)
    assert materials.certified(settings, first)[1] == materials.certified(load(None), plain)[1]
