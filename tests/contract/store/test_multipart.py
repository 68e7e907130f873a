"""Large objects on a real S3 server: in parts, whole or not at all, never over another, and no debris."""

import io
import json
import lzma
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
import urllib.request
from datetime import timedelta
from pathlib import Path

import pytest

from services.runtime import store_multipart
from services.runtime.checkpoints import CheckpointMeta, fetch_checkpoint, load_manifest, publish_checkpoint
from services.runtime.store import MissingObject, StoreUnavailable, open_store
from services.runtime.store_multipart import abort_abandoned
from tests.s3 import free_port

ROOT = Path(__file__).parents[3]
MIB = 1024 * 1024


@pytest.fixture
def settings(s3_server):
    return s3_server.settings(url=f"s3://{s3_server.bucket()}/team")


def file_of(path, mib, byte):
    with path.open("wb") as out:
        for _ in range(mib):
            out.write(byte * MIB)
    return path


def uploads(store):
    return [u.object_name for u in store._client._list_multipart_uploads(store._bucket).uploads]


def test_a_large_file_goes_up_and_down_through_bounded_memory(settings, tmp_path):
    store = open_store(settings)
    path = file_of(tmp_path / "big", 48, b"a")
    tracemalloc.start()
    key = store.put_content(path)
    with (tmp_path / "back").open("wb") as out:
        assert store.get_into(key, out) == key[-64:]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * store_multipart.PART_BYTES
    assert (tmp_path / "back").stat().st_size == 48 * MIB
    assert uploads(store) == []


def test_of_many_large_writers_one_wins(settings, tmp_path, monkeypatch):
    """The condition is part of the last request: large objects are as safe from a second writer as small ones."""
    monkeypatch.setattr(store_multipart, "ABOVE_BYTES", MIB)
    stores = [open_store(settings) for _ in range(3)]
    files = [file_of(tmp_path / str(n), 2, bytes([65 + n])) for n in range(3)]
    won, start = [], threading.Barrier(3)

    def write(n):
        start.wait(10)
        if stores[n].put_if_absent("runs/r/big", files[n]):
            won.append(n)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert len(won) == 1
    assert stores[0].get("runs/r/big") == files[won[0]].read_bytes()
    assert not stores[0].put_if_absent("runs/r/big", files[0])
    assert uploads(stores[0]) == []


def test_a_killed_upload_shows_nothing_and_is_swept_later(settings, tmp_path):
    """kill -9 after a part: no object; the parts go once they are old, those of others under the bucket stay."""
    store = open_store(settings)
    path = file_of(tmp_path / "big", 24, b"k")
    code = """
import sys, time
from pathlib import Path
from services.runtime.settings import Store
from services.runtime.store import open_store
store = open_store(Store.model_validate_json(sys.argv[1]))
send = store._client._upload_part
def part(*arguments):
    if arguments[-1] == 3:
        print("two parts are up", flush=True)
        time.sleep(600)
    return send(*arguments)
store._client._upload_part = part
store.put_content(Path(sys.argv[2]))
"""
    child = subprocess.Popen(
        [sys.executable, "-c", code, settings.model_dump_json(), path], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout.readline() == "two parts are up\n"
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
    foreign = "team/somebody/elses"
    store._client._create_multipart_upload(store._bucket, foreign, {})
    assert list(store.list()) == []
    assert len(uploads(open_store(settings))) == 2, "a young upload may still be somebody's"
    time.sleep(1.1)  # the server's times are whole seconds
    assert abort_abandoned(store._client, store._bucket, "team/", timedelta(seconds=0)) == 1
    assert uploads(store) == [foreign]
    key = store.put_content(path)
    assert store.exists(key)


def test_a_server_that_dies_in_the_middle_of_an_upload(settings, s3_server, tmp_path, monkeypatch):
    store = open_store(settings)
    path = file_of(tmp_path / "big", 17, b"d")
    send, killed = store._client._upload_part, []

    def part(*arguments):
        if not killed:
            killed.append(True)
            s3_server.signal("KILL")
        return send(*arguments)

    monkeypatch.setattr(store._client, "_upload_part", part)
    try:
        with pytest.raises(StoreUnavailable):
            store.put_content(path)
    finally:
        s3_server.start()
    assert list(store.list()) == []
    with pytest.raises(MissingObject):
        store.get_content("sha256/ab/" + "ab" * 32)
    key = store.put_content(path)
    with (tmp_path / "back").open("wb") as out:
        assert store.get_into(key, out) == key[-64:]


def test_an_error_that_comes_with_status_200_is_an_error(settings, tmp_path, monkeypatch):
    """S3 answers a completion before it has done it; what then fails stands in the body."""
    store = open_store(settings)
    monkeypatch.setattr(store_multipart, "ABOVE_BYTES", 1)
    real = store._once._execute

    def execute(method, *arguments, **more):
        answer = real(method, *arguments, **more)
        if method == "POST":
            answer._body = b"<Error><Code>InternalError</Code></Error>"
        return answer

    monkeypatch.setattr(store._once, "_execute", execute)
    path = file_of(tmp_path / "some", 1, b"e")
    with pytest.raises(StoreUnavailable, match="InternalError"):
        store.put_if_absent("runs/r/some", path)


@pytest.fixture
def cut_at(shared_equipment, s3_server, tmp_path):
    """A function that makes every answer of the server end after so many bytes, and the endpoint where it does."""
    packed = shared_equipment / "toxiproxy" / "toxiproxy-server.xz"
    if not packed.is_file():
        pytest.skip(f"no toxiproxy: {packed} is absent")
    binary = tmp_path / "toxiproxy"
    with lzma.open(packed) as source, binary.open("wb") as out:
        shutil.copyfileobj(source, out)
    binary.chmod(0o755)
    control, port = free_port(), free_port()

    def post(path, body):
        request = urllib.request.Request(f"http://127.0.0.1:{control}/{path}", json.dumps(body).encode())
        urllib.request.urlopen(request, timeout=10).close()

    child = subprocess.Popen([binary, "-port", str(control)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        proxy = {"name": "s3", "listen": f"127.0.0.1:{port}", "upstream": s3_server.endpoint, "enabled": True}
        for _ in range(100):
            try:
                post("proxies", proxy)
                break
            except OSError:
                time.sleep(0.1)
        cut = {"type": "limit_data", "stream": "downstream"}
        yield f"127.0.0.1:{port}", lambda size: post("proxies/s3/toxics", {**cut, "attributes": {"bytes": size}})
    finally:
        child.kill()
        child.wait()


def test_a_download_that_ends_too_early_is_no_object(cut_at, settings, tmp_path):
    """Half of a checkpoint never becomes one: the connection that closes in the middle is an outage."""
    endpoint, cut = cut_at
    store = open_store(settings.model_copy(update={"endpoint": endpoint}))
    key = store.put_content(b"w" * 2_000_000)
    meta = CheckpointMeta("r", 1)
    manifest = load_manifest(store, *publish_checkpoint(store, {"model": b"w" * 2_000_000}, meta))
    cut(300_000)
    for use in (
        lambda: store.get(key),
        lambda: store.get_into(key, io.BytesIO()),
        lambda: fetch_checkpoint(store, manifest, tmp_path / "out"),
    ):
        with pytest.raises(StoreUnavailable):
            use()
    assert list((tmp_path / "out").iterdir()) == []
    fetch_checkpoint(open_store(settings), manifest, tmp_path / "out")
    assert (tmp_path / "out" / "model").stat().st_size == 2_000_000
