"""Protects the preparation of a run: certificates lie beside the task set, training without them is refused."""

from pathlib import Path

import pytest

from infra.local.prepare import build_task_set, store_certificates, store_task_set
from services.runtime.errors import UserError
from services.runtime.settings import load
from services.runtime.store import open_store
from services.tasks import certificates
from services.tasks.certificates import Certificates
from services.tasks.training import object_key


def prepared(root: Path, **sections):
    settings = load(None, store={"url": f"file://{root / 'store'}"}, **sections)
    store = open_store(settings.store)
    tasks = build_task_set(settings)
    digest = store_task_set(tasks, store)
    return store_certificates(settings, tasks, store, digest), store, digest


def test_the_shipped_certificates_go_with_the_catalogue(tmp_path: Path) -> None:
    notice, store, digest = prepared(tmp_path)
    assert notice == ""
    assert store.get(object_key(digest)) == certificates.shipped()


def test_another_catalogue_is_refused_unless_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not certified"):
        prepared(tmp_path, tasks={"seed": 1})
    prepared(tmp_path, tasks={"seed": 1, "allow_uncertified": True})
    prepared(tmp_path, tasks={"seed": 1}, dispatch={"updates": 0})  # nothing is trained on


def test_a_named_file_replaces_the_shipped_one(tmp_path: Path) -> None:
    named = tmp_path / "certificates.json"
    with pytest.raises(UserError, match="cannot be read"):
        prepared(tmp_path, tasks={"certificates": str(named)})
    named.write_bytes(b"{}")
    with pytest.raises(UserError, match="format"):
        prepared(tmp_path, tasks={"certificates": str(named)})
    named.write_bytes(Certificates().document())
    with pytest.raises(UserError, match="no certificate"):
        prepared(tmp_path, tasks={"certificates": str(named)})
    named.write_bytes(certificates.shipped())
    assert prepared(tmp_path, tasks={"certificates": str(named)})[0] == ""
