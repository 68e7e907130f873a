"""Least privilege on a real S3 server, by the generated policies: who may do what, and what nobody else may."""

import pytest

from services.runtime.errors import UserError
from services.runtime.settings import load
from services.runtime.store import MissingObject, open_hidden, open_store
from services.runtime.store_rights import RIGHTS, policies

HIDDEN = "tasks/d/hidden.json"
PUBLIC, MANIFEST, CONTENT = "tasks/d/public.json", "runs/r/checkpoints/00000000.json", "sha256/ab/abcd"
RECORDED = "recorded/r/sandbox.command.v1/0/segment"


@pytest.fixture(scope="module")
def settings(s3_server, tmp_path_factory):
    """Two buckets with one object of each kind."""
    made = s3_server.least_privilege(tmp_path_factory.mktemp("secrets"))
    store = open_store(made.store)
    for key in (PUBLIC, MANIFEST, CONTENT, RECORDED):
        store.put(key, b"x")
    open_hidden(made).put(HIDDEN, b"answers")
    return made


def denied(use):
    with pytest.raises(UserError, match="may not do this"):
        use()


@pytest.mark.parametrize("service", [*(name for name in RIGHTS if name not in ("verifier", "operator")), "stranger"])
def test_nobody_but_the_verifier_opens_the_hidden_checks(settings, s3_server, service):
    if service == "stranger":
        settings = settings.model_copy(
            update={"hidden_store": s3_server.settings(url=settings.hidden_store.url, access_key="x", secret_key="y")}
        )
        with pytest.raises(UserError, match="unknown"):
            open_hidden(settings, service)
        return
    denied(lambda: open_hidden(settings, service))
    # Not by the client either, which asks without looking first.
    client = open_store(settings.store, service)
    client._bucket, client._prefix = settings.hidden_store.url.removeprefix("s3://"), ""
    denied(lambda: client.get(HIDDEN))
    denied(lambda: client.exists(HIDDEN))
    denied(lambda: [*client.list()])
    denied(lambda: client.put(HIDDEN, b"mine"))
    denied(lambda: client.put_if_absent("tasks/e/hidden.json", b"mine"))
    denied(lambda: client.delete(HIDDEN))
    assert open_hidden(settings).get(HIDDEN) == b"answers"


def test_the_verifier_reads_the_hidden_checks_and_changes_nothing(settings):
    hidden, store = open_hidden(settings, "verifier"), open_store(settings.store, "verifier")
    assert hidden.get(HIDDEN) == b"answers"
    assert store.get(PUBLIC) == store.get(CONTENT) == b"x"
    for where, key in ((hidden, HIDDEN), (hidden, "tasks/e/hidden.json"), (store, PUBLIC), (store, CONTENT)):
        denied(lambda where=where, key=key: where.put(key, b"y"))
        denied(lambda where=where, key=key: where.delete(key))


@pytest.mark.parametrize("service", [name for name in RIGHTS if name != "operator"])
def test_each_service_writes_and_deletes_only_what_is_its_business(settings, service):
    store = open_store(settings.store, service)
    creates = {"sampler": {CONTENT}, "trainer": {CONTENT, MANIFEST}, "recorder": {RECORDED}}
    may_create = creates.get(service, set())
    may_delete = {CONTENT, MANIFEST} if service == "trainer" else set()
    for key in (PUBLIC, MANIFEST, CONTENT, RECORDED):
        fresh = f"{key}-{service}"
        if key in may_create:
            assert store.put_if_absent(fresh, b"z")
        else:
            denied(lambda fresh=fresh: store.put_if_absent(fresh, b"z"))
            denied(lambda key=key: store.put(key, b"z"))
        if key in may_delete:
            store.delete(fresh)
        else:
            denied(lambda key=key: store.delete(key))
    operator = open_store(settings.store)
    assert {operator.get(key) for key in (PUBLIC, MANIFEST, CONTENT, RECORDED)} == {b"x"}


def test_what_was_recorded_is_read_by_the_recorder_alone_and_it_reads_nothing_else(settings):
    """The topics hold everything that was ever said: no service that may not read them reads their copies."""
    for service in (name for name in RIGHTS if name not in ("recorder", "operator")):
        denied(lambda service=service: open_store(settings.store, service).get(RECORDED))
    recorder = open_store(settings.store, "recorder")
    assert recorder.get(RECORDED) == b"x"
    for key in (PUBLIC, MANIFEST, CONTENT):
        denied(lambda key=key: recorder.get(key))


def test_a_command_in_a_services_container_logs_in_as_that_service(settings, monkeypatch):
    """No secret but its own lies there; elsewhere a command is its operator's."""
    assert open_store(settings.store).get(PUBLIC) == b"x"
    monkeypatch.setenv("ROLLSTREAM_PRINCIPAL", "recorder")
    recorder = open_store(settings.store)
    assert recorder.get(RECORDED) == b"x"
    denied(lambda: recorder.get(PUBLIC))


@pytest.mark.parametrize(("service", "keys"), [
    ("sandbox", {PUBLIC}), ("dispatch", {PUBLIC}), ("sampler", {PUBLIC, MANIFEST, CONTENT}),
    ("trainer", {MANIFEST, CONTENT}), ("gate", {PUBLIC, MANIFEST, CONTENT}), ("verifier", {PUBLIC, CONTENT}),
])  # fmt: skip
def test_each_service_reads_what_it_needs(settings, service, keys):
    store = open_store(settings.store, service)
    for key in (PUBLIC, MANIFEST, CONTENT):
        if key in keys:
            assert store.get(key) == b"x"
            with pytest.raises(MissingObject):  # said as what it is, not as a denial
                store.get(f"{key}-absent")
        else:
            denied(lambda key=key: store.get(key))


def test_large_files_take_no_other_right(settings, tmp_path, monkeypatch):
    from services.runtime import store_multipart

    monkeypatch.setattr(store_multipart, "ABOVE_BYTES", 1024)
    path = tmp_path / "weights"
    path.write_bytes(b"w" * 5000)
    assert open_store(settings.store, "trainer").put_content(path)
    path.write_bytes(b"v" * 5000)
    denied(lambda: open_store(settings.store, "gate").put_content(path))


def test_policies_need_two_buckets_and_a_login_each():
    one = {"store": {"url": "s3://one", "access_key": "{service}"}}
    for sections, says in (
        (one, "no bucket of their own"),
        ({**one, "hidden_store": {"url": "s3://one/other", "access_key": "{service}"}}, "no bucket of their own"),
        ({**one, "hidden_store": {"url": "s3://two", "access_key": "all"}}, "one login"),
        ({**one, "hidden_store": {"url": "file:///two", "access_key": "{service}"}}, "is no bucket"),
    ):
        with pytest.raises(UserError, match=says):
            policies(load(None, **sections))
