"""Protects the preparation of a run on a cluster: whole or repeatable, never mixed, patient with what is not there."""

import functools
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from infra.broker.testing import running_broker
from infra.local.rundir import free_port
from infra.prepare import cluster
from infra.prepare.cluster import Options, prepare_cluster
from infra.prepare.materials import build_task_set
from services.runtime.errors import NotYet, UserError
from services.runtime.logs import Log
from services.runtime.prepared import load_prepared, prepared_key
from services.runtime.settings import load
from services.runtime.store import open_hidden, open_store
from services.runtime.store_local import LocalStore
from services.runtime.topics_admin import ensure_topics
from services.tasks.certificates import shipped
from services.tasks.training import object_key

ROOT = Path(__file__).parents[3]
RUN = "k"
NOBODY = "127.0.0.1:9"


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory):
    with running_broker(tmp_path_factory.mktemp("prepare") / "broker") as running:
        ensure_topics(load(kafka={"bootstrap": running.bootstrap}))
        yield running.bootstrap


@pytest.fixture
def settings(bootstrap, tmp_path):
    """Of a run without a model, whose two stores are folders."""
    return load(
        run_id=RUN, kafka={"bootstrap": bootstrap}, sampler={"engine": "synthetic"}, trainer={"kind": "synthetic"},
        store={"url": f"file://{tmp_path}/store"}, hidden_store={"url": f"file://{tmp_path}/hidden"},
    )  # fmt: skip


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """Another base in each cold start, in no time: those that a clock cuts differ, too. A task set is built once."""
    made = []

    def start(settings, config, home, log, progress):
        folder = tmp_path / f"base{len(made)}"
        folder.mkdir()
        (folder / "model.safetensors").write_text(f"weights {len(made)}")
        made.append(folder)
        return folder, {"steps": 0}

    monkeypatch.setattr(cluster, "cold_start", start)
    monkeypatch.setattr(cluster, "build_task_set", lambda settings: built(settings.tasks.seed))
    return made


@functools.cache
def built(seed):
    return build_task_set(load(tasks={"seed": seed}))


def prepared(settings, **options):
    """What `prepare_cluster` returns, and its log lines."""
    out = io.StringIO()
    done = prepare_cluster(settings, Options(**options), Log("prepare", RUN, out))
    return done, [json.loads(line) for line in out.getvalue().splitlines()]


def everything(settings):
    stores = open_store(settings.store), open_hidden(settings)
    return [{key: store.get(key) for key in store.list()} for store in stores]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_without_a_model_is_prepared_for_real(settings, tmp_path):
    """As a Job would: the command, its scratch and caches under HOME alone, no cold start where nothing would learn."""
    config = tmp_path / "run.toml"
    config.write_text(f'run_id = "{RUN}"\n[sampler]\nengine = "synthetic"\n[trainer]\nkind = "synthetic"\n')
    home = tmp_path / "home"
    home.mkdir()
    environment = {
        **os.environ, "ROLLSTREAM_CONFIG": str(config), "HOME": str(home), "TMPDIR": str(home), "PYTHONPATH": str(ROOT),
        "ROLLSTREAM_KAFKA__BOOTSTRAP": settings.kafka.bootstrap, "ROLLSTREAM_STORE__URL": settings.store.url,
        "ROLLSTREAM_HIDDEN_STORE__URL": settings.hidden_store.url,
    }  # fmt: skip
    environment.pop("ROLLSTREAM_CACHE", None)
    command = [sys.executable, "-m", "services.cli", "prepare"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "engine and trainer are synthetic" in done.stderr
    store = open_store(settings.store)
    found = load_prepared(store, RUN)
    assert found.coldstart["steps"] == 0
    assert store.get(object_key(found.taskset_digest)) == shipped()
    assert open_hidden(settings).exists(f"tasks/{found.taskset_digest}/hidden.json")
    assert not store.exists(f"tasks/{found.taskset_digest}/hidden.json")
    assert {p.name for p in tmp_path.iterdir()} == {"run.toml", "home", "store", "hidden"}
    before = everything(settings)
    again = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert again.returncode == 0, again.stderr
    assert "nothing to do" in again.stderr
    assert everything(settings) == before


def test_repeated_it_finds_everything(settings, quick):
    first, _ = prepared(settings)
    before = everything(settings)
    again, lines = prepared(settings)
    assert again == first
    assert lines[-1]["event"] == "prepared before; nothing to do"
    assert everything(settings) == before
    assert len(quick) == 1


class Killed(BaseException):
    """Nothing is cleaned up after it."""


def test_killed_at_any_write_it_can_be_repeated(settings, quick, monkeypatch):
    """And the object that services wait for is the last one written."""
    keys = []

    def fused(original):
        def write(self, key, data):
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            keys.append(key)
            return original(self, key, data)

        return write

    for method in ("put", "put_if_absent"):
        monkeypatch.setattr(LocalStore, method, fused(getattr(LocalStore, method)))
    for number in range(20):
        left = [number]
        assert load_prepared(open_store(settings.store), RUN) is None
        try:
            done, _ = prepared(settings)
            break
        except Killed:
            continue
    assert number >= 6, "task set, certificates, weights, manifest, and what is waited for"
    assert keys[-1] == prepared_key(RUN)
    assert not any(key == prepared_key(RUN) for key in keys[:-1])
    store = open_store(settings.store)
    assert store.exists(done.base_manifest)
    assert len(list(store.list("runs/k/checkpoints/"))) == 1, "a begun base is kept"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"tasks": {"seed": 1, "allow_uncertified": True}}, "tasks.seed was 0, is 1"),
        ({"tasks": {"leak_canaries": 2}}, "tasks.leak_canaries was 0, is 2"),
        ({"seed": 7}, "seed was 0, is 7"),
        ({"model": {"hidden": 64}}, "model.hidden was 128, is 64"),
    ],
)
def test_another_task_set_or_base_under_the_same_run_id_is_refused(settings, quick, change, named):
    prepared(settings)
    before = everything(settings)
    sections = {name: value for name, value in settings if name in ("kafka", "sampler", "trainer", "store")}
    other = load(run_id=RUN, hidden_store=settings.hidden_store, **{**sections, **change})
    with pytest.raises(UserError, match=named) as refused:
        prepared(other)
    assert "another run_id" in str(refused.value)
    assert everything(settings) == before


def test_what_decides_nothing_of_the_start_may_change(settings, quick):
    first, _ = prepared(settings)
    other = settings.model_copy(update={"dispatch": settings.dispatch.model_copy(update={"updates": 99})})
    assert prepared(other)[0] == first


def test_a_base_that_another_configuration_left_is_refused(settings, quick, monkeypatch):
    """Killed after version 0 was published, and then begun with other settings."""
    with monkeypatch.context() as patch:
        patch.setattr(cluster, "publish_prepared", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            prepared(settings)
    other = settings.model_copy(update={"seed": 3})
    with pytest.raises(UserError, match="version 0 of run 'k' was made from another"):
        prepared(other)
    assert prepared(settings)[0].base_manifest == "runs/k/checkpoints/00000000.json"
    assert len(quick) == 1, "its own settings take it as it is"


def test_what_was_lost_from_the_store_is_named(settings, quick):
    done, _ = prepared(settings)
    open_hidden(settings).delete(f"tasks/{done.taskset_digest}/hidden.json")
    with pytest.raises(UserError, match=r"hidden\.json"):
        prepared(settings)


def test_of_two_at_once_the_first_counts_for_both(settings, quick):
    results = []
    threads = [threading.Thread(target=lambda: results.append(prepared(settings)[0])) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(results) == 2
    assert results[0] == results[1] == load_prepared(open_store(settings.store), RUN)


def test_it_waits_for_the_broker_and_says_so(settings, quick, tmp_path):
    """Topics are made as soon as one answers."""
    port = free_port()
    late = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"bootstrap": f"127.0.0.1:{port}"})})
    with pytest.raises(NotYet):
        prepared(late, wait_s=0.5)
    environment = {**os.environ, "ROLLSTREAM_KAFKA__BOOTSTRAP": NOBODY, "ROLLSTREAM_STORE__URL": settings.store.url}
    command = [sys.executable, "-m", "services.cli", "prepare", "--wait", "0.1"]
    gave_up = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100)
    assert gave_up.returncode == 1, "a later try may succeed: 2 would say that a person must mend something first"
    assert "no broker accepts connections" in gave_up.stderr
    results = []
    thread = threading.Thread(target=lambda: results.append(prepared(late, wait_s=60)))
    thread.start()
    time.sleep(1.0)
    assert thread.is_alive()
    with running_broker(tmp_path / "late", port=port):
        thread.join(60)
    (done, lines) = results[0]
    assert done.run_id == RUN
    events = [line["event"] for line in lines]
    assert "waiting for the broker" in events
    assert events.index("waiting for the broker") < events.index("topics stand")


def test_sigterm_ends_a_job_that_waits(tmp_path):
    """Also where it is the first process of a container, which gets no signal that it has not asked for."""
    environment = {
        **os.environ, "ROLLSTREAM_KAFKA__BOOTSTRAP": NOBODY, "ROLLSTREAM_STORE__URL": f"file://{tmp_path}",
    }  # fmt: skip
    command = [sys.executable, "-m", "services.cli", "prepare"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as child:
        try:
            assert "waiting for the broker" in child.stderr.readline()
            child.send_signal(signal.SIGTERM)
            assert child.wait(5) == 128 + signal.SIGTERM
        finally:
            child.kill()
