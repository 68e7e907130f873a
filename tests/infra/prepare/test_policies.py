"""A preparation that makes the buckets and says who may do what in them, on a real S3 server."""

import subprocess
import uuid

import pytest

from infra.prepare.cluster import Options, _stores
from services.runtime.errors import UserError
from services.runtime.logs import Log
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


def test_after_it_every_login_opens_just_what_it_needs(server, shared_equipment, tmp_path):
    script = shared_equipment / "s3" / "s3.sh"
    for user in RIGHTS:
        (tmp_path / f"{user}.key").write_text(f"secret-of-{user}\n")
        if user != "operator":
            add = [script, "user", server.folder, user, f"secret-of-{user}"]
            subprocess.run(add, check=True, capture_output=True, timeout=60)
    login = {"endpoint": server.endpoint, "secure": False, "access_key": "{service}"}
    login["secret_key_file"] = str(tmp_path / "{service}.key")
    name = f"b{uuid.uuid4().hex[:8]}"
    run = load(None, store={"url": f"s3://{name}/team", **login}, hidden_store={"url": f"s3://{name}-hidden", **login})
    with pytest.raises(UserError, match="bucket does not exist"):
        open_store(run.store, "sampler")
    public, hidden = _stores(run, Options(create_buckets=True, bucket_policies=True), Log("prepare", "run"))
    public.put("tasks/x/public.json", b"{}")
    hidden.put("tasks/x/hidden.json", b"{}")
    assert open_store(run.store, "sampler").get("tasks/x/public.json") == b"{}"
    assert open_hidden(run, "verifier").get("tasks/x/hidden.json") == b"{}"
    with pytest.raises(UserError, match="may not do this"):
        open_hidden(run, "sampler")
