"""A preparation that makes the buckets and says who may do what in them, on a real S3 server."""

import subprocess
import threading
import uuid

import pytest

from infra.prepare.cluster import Options, _stores
from services.runtime import prepared
from services.runtime.errors import UserError
from services.runtime.logs import Log
from services.runtime.prepared import Prepared, completed, publish_prepared
from services.runtime.process import ServiceProcess
from services.runtime.settings import load
from services.runtime.store import open_hidden, open_store
from services.runtime.store_rights import RIGHTS
from tests.s3 import s3_server


@pytest.fixture
def server(shared_equipment, tmp_path, monkeypatch):
    """A server whose root is the operator."""
    monkeypatch.setenv("S3_ROOT", "operator")
    monkeypatch.setenv("S3_SECRET", "secret-of-operator")
    with s3_server(shared_equipment, tmp_path) as running:
        yield running


@pytest.fixture
def run(server, shared_equipment, tmp_path):
    """Settings of a run whose buckets are not there yet, and a user for every service."""
    script = shared_equipment / "s3" / "s3.sh"
    for user in RIGHTS:
        (tmp_path / f"{user}.key").write_text(f"secret-of-{user}\n")
        if user != "operator":
            add = [script, "user", server.folder, user, f"secret-of-{user}"]
            subprocess.run(add, check=True, capture_output=True, timeout=60)
    login = {"endpoint": server.endpoint, "secure": False, "access_key": "{service}"}
    login["secret_key_file"] = str(tmp_path / "{service}.key")
    name = f"b{uuid.uuid4().hex[:8]}"
    return load(None, store={"url": f"s3://{name}/team", **login}, hidden_store={"url": f"s3://{name}-hidden", **login})


def test_after_it_every_login_opens_just_what_it_needs(run):
    with pytest.raises(UserError, match="bucket does not exist"):
        open_store(run.store, "sampler")
    public, hidden = _stores(run, Options(create_buckets=True, bucket_policies=True), Log("prepare", "run"))
    public.put("tasks/x/public.json", b"{}")
    hidden.put("tasks/x/hidden.json", b"{}")
    assert open_store(run.store, "sampler").get("tasks/x/public.json") == b"{}"
    assert open_hidden(run, "verifier").get("tasks/x/hidden.json") == b"{}"
    with pytest.raises(UserError, match="may not do this"):
        open_hidden(run, "sampler")


def test_a_service_that_comes_between_bucket_and_policy_waits_for_its_right(run, monkeypatch):
    """It would end with exit code 2 and look as if somebody had to mend a login."""
    monkeypatch.setattr(prepared, "_LOOK_S", 0.1)
    _stores(run, Options(create_buckets=True), Log("prepare", run.run_id))
    found = []
    waiting = threading.Thread(target=lambda: found.append(completed(ServiceProcess("sampler", run))), daemon=True)
    waiting.start()
    waiting.join(1.5)
    assert waiting.is_alive()
    store, _ = _stores(run, Options(bucket_policies=True), Log("prepare", run.run_id))
    publish_prepared(store, Prepared(run.run_id, "digest", "base"))
    waiting.join(20)
    assert [settings.base_manifest for settings in found] == ["base"]


def test_a_right_that_nobody_gives_is_told_as_such(run, monkeypatch):
    monkeypatch.setattr(prepared, "GRANT_S", 0.5)
    monkeypatch.setattr(prepared, "_LOOK_S", 0.1)
    _stores(run, Options(create_buckets=True), Log("prepare", run.run_id))
    with pytest.raises(UserError, match="may not do this"):
        completed(ServiceProcess("sampler", run))
