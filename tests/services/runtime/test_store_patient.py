"""A store that is down while a service starts is waited for; a mistake is not, and neither is an end that was asked."""

import io
import os

import pytest

from services.runtime.errors import UserError
from services.runtime.settings import load, secret_environment, without_settings
from services.runtime.store import MissingObject, StoreUnavailable, digest_of, hidden_section, open_hidden
from services.runtime.store_local import LocalStore
from services.runtime.store_patient import PatientStore

DOWN = StoreUnavailable("the object store does not answer")


class Flaky(LocalStore):
    """Fails `down` times before each success, and in the middle of a download."""

    down = 0

    def get(self, key):
        self._fail()
        return super().get(key)

    def exists(self, key):
        self._fail()
        return super().exists(key)

    def list(self, prefix=""):
        self._fail()
        yield from super().list(prefix)

    def get_into(self, key, out):
        if self.down:
            out.write(b"half of it")
        self._fail()
        return super().get_into(key, out)

    def _fail(self):
        if self.down:
            self.down -= 1
            raise DOWN


def test_every_call_is_made_again_until_it_is_answered(tmp_path):
    opened, waits = [], []

    def make():
        opened.append(True)
        if len(opened) < 3:
            raise DOWN
        return Flaky(tmp_path, fsync=False)

    store = PatientStore(make, waits.append)
    assert (len(opened), len(waits)) == (3, 2)
    inner = store._store
    key = store.put_content(b"weights")
    out = io.BytesIO()
    for use, expected in (
        (lambda: store.get(key), b"weights"),
        (lambda: store.get_content(key), b"weights"),
        (lambda: store.exists(key), True),
        (lambda: [*store.list()], [key]),
        (lambda: store.get_into(key, out), digest_of(b"weights")),
    ):
        inner.down = 3
        assert use() == expected
        assert inner.down == 0
    assert out.getvalue() == b"weights", "what a broken download left is gone"


def test_what_is_no_outage_passes_at_once(tmp_path):
    def refused():
        raise UserError("the secret key is wrong")

    with pytest.raises(UserError, match="secret key"):
        PatientStore(refused, lambda error: pytest.fail("waited for a mistake"))
    store = PatientStore(lambda: Flaky(tmp_path, fsync=False), lambda error: pytest.fail("waited for nothing"))
    with pytest.raises(MissingObject):
        store.get("no/such")


def test_the_wait_may_give_up(tmp_path):
    def wait(error):
        raise error

    store = PatientStore(lambda: Flaky(tmp_path, fsync=False), wait)
    store._store.down = 1
    with pytest.raises(StoreUnavailable):
        store.get("a")


def test_hidden_checks_lie_in_the_same_store_unless_another_is_named(tmp_path):
    one = load(None, store={"url": f"file://{tmp_path}/a"})
    assert hidden_section(one) is one.store
    two = load(None, store={"url": f"file://{tmp_path}/a"}, hidden_store={"url": f"file://{tmp_path}/b"})
    open_hidden(two).put("tasks/d/hidden.json", b"answers")
    assert (tmp_path / "b" / "tasks" / "d" / "hidden.json").exists()
    assert not (tmp_path / "a").exists()


def test_only_the_verifier_is_given_the_login_of_the_hidden_store(monkeypatch):
    monkeypatch.setenv("rollstream_hidden_store__access_key", "inherited")
    settings = load(None, store={"secret_key": "open"}, hidden_store={"secret_key": "answers"})
    verifier = secret_environment(settings, "verifier")
    assert verifier["ROLLSTREAM_HIDDEN_STORE__SECRET_KEY"] == "answers"
    for service in ("sampler", "sandbox", "trainer", "coldstart"):
        given = secret_environment(settings, service)
        assert given["ROLLSTREAM_STORE__SECRET_KEY"] == "open"
        assert given["ROLLSTREAM_HIDDEN_STORE__SECRET_KEY"] == ""
        assert "answers" not in str(given)
        with monkeypatch.context() as child:
            for name in set(os.environ) - set(without_settings(os.environ)):
                child.delenv(name)
            for name, value in given.items():
                child.setenv(name, value)
            inside = load(None)
            assert (inside.hidden_store.access_key, inside.hidden_store.secret_key) == ("", "")
