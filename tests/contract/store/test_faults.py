"""What a person can cause, each as one clear message: full disk, missing bucket, wrong keys, nobody there."""

import http.server
import io
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from services.runtime.errors import UserError
from services.runtime.settings import Store
from services.runtime.store import StoreFull, StoreUnavailable, open_store
from services.runtime.store_local import LocalStore
from tests.chaos.clocks import Clocks
from tests.s3 import free_port

ROOT = Path(__file__).parents[3]


def mended(what):
    text = str(what.value)
    assert "what to do:" in text
    return text


@pytest.mark.parametrize("url", ["", "ftp://x/y", "file://relative/path", "s3:///nobucket"])
def test_unknown_forms_of_url(url):
    with pytest.raises(UserError) as caught:
        open_store(Store(url=url))
    assert "file:///" in mended(caught)


def test_s3_without_endpoint():
    with pytest.raises(UserError, match="endpoint") as caught:
        open_store(Store(url="s3://bucket"))
    mended(caught)


def test_missing_bucket(s3_server):
    with pytest.raises(UserError, match="bucket does not exist") as caught:
        open_store(s3_server.settings(url="s3://nowhere-at-all"))
    assert "nowhere-at-all" in mended(caught)


def test_wrong_secret_and_unknown_key(s3_server):
    bucket = s3_server.bucket()
    with pytest.raises(UserError, match="secret key is wrong") as caught:
        open_store(s3_server.settings(url=f"s3://{bucket}", secret_key="guess"))
    mended(caught)
    with pytest.raises(UserError) as caught:
        open_store(s3_server.settings(url=f"s3://{bucket}", access_key="stranger"))
    assert "guess" not in mended(caught)


def test_nobody_at_the_endpoint():
    with pytest.raises(UserError, match="does not answer") as caught:
        open_store(Store(url="s3://bucket", endpoint="127.0.0.1:1", secure=False, access_key="a", secret_key="b"))
    assert "127.0.0.1:1" in mended(caught)


def test_a_bucket_name_that_cannot_be():
    with pytest.raises(UserError, match="invalid bucket name") as caught:
        open_store(Store(url="s3://b", endpoint="127.0.0.1:1", secure=False))
    mended(caught)


def test_an_outage_is_told_from_a_mistake(s3_server):
    """kill -9 of the server: StoreUnavailable, which jobs may wait out; with the server back, the objects are there."""
    store = open_store(s3_server.settings(url=f"s3://{s3_server.bucket()}"))
    store.put("a", b"1")
    s3_server.signal("KILL")
    try:
        for use in (lambda: store.put("b", b"2"), lambda: store.put_if_absent("b", b"2"), lambda: store.get("a")):
            with pytest.raises(StoreUnavailable):
                use()
    finally:
        s3_server.start()
    assert store.get("a") == b"1"
    assert store.put_if_absent("b", b"2")


SKEWED = """
import sys
from services.runtime.settings import Store
from services.runtime.store import StoreUnavailable, open_store
settings = Store(url=sys.argv[1], endpoint=sys.argv[2], secure=False, access_key="root", secret_key="rootsecret")
store = open_store(settings)
store.put("a", b"1")
print("right", flush=True)
sys.stdin.readline()
uses = (lambda: store.put("a", b"2"), lambda: store.exists("a"), lambda: store.get("a"), lambda: open_store(settings))
for use in uses:
    try:
        use()
    except StoreUnavailable as e:
        print(str(e).replace(chr(10), " "), flush=True)
sys.stdin.readline()
print(store.get("a"), flush=True)
"""


@pytest.mark.parametrize("hours", [1, -1])
def test_a_wrong_clock_is_named_and_passes(s3_server, tmp_path, hours):
    """Servers refuse requests of another hour, a HEAD without a reason: no matter of rights, and it may be mended."""
    clocks = Clocks(tmp_path)
    if not clocks.there:
        pytest.skip(clocks.why)
    command = [sys.executable, "-c", SKEWED, f"s3://{s3_server.bucket()}", s3_server.endpoint]
    environment = {**os.environ, **clocks.environment("one")}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "right\n"
        said = []
        for seconds in (3600 * hours, 0):
            clocks.set(["one"], seconds)
            child.stdin.write("go\n")
            child.stdin.flush()
            said += [child.stdout.readline() for _ in range(4 if seconds else 1)]
    assert all(f"a clock {60 * hours:+d} min from its own" in line for line in said[:4]), said
    assert all("what to do: set the clock" in line for line in said[:4]), said
    assert said[4] == "b'1'\n"


SET_RIGHT = """
import os, struct, sys
from services.runtime.settings import Store
from services.runtime.store import StoreUnavailable, open_store
store = open_store(Store(
    url=sys.argv[1], endpoint=sys.argv[2], secure=False, access_key="root", secret_key="rootsecret"
))
def set_clock(seconds):
    with open(os.environ["CHAOS_CLOCK"], "r+b") as file:
        file.write(struct.pack("q", seconds))
def answer(ask):
    def asked(*args, **kwargs):
        said = ask(*args, **kwargs)
        set_clock(0)
        return said
    return asked
for client in (store._client, store._once):
    client._http.urlopen = answer(client._http.urlopen)
uses = (lambda: store.put("a", b"1"), lambda: store.put_if_absent("b", b"2"), lambda: store.exists("a"))
for use in uses:
    set_clock(int(sys.argv[3]))
    try:
        use()
    except StoreUnavailable as e:
        print(str(e).replace(chr(10), " "), flush=True)
print(store.put_if_absent("a", b"3"))
"""


@pytest.mark.parametrize("hours", [1, -1])
def test_a_clock_that_is_set_right_before_the_answer_comes_is_waited_out_too(s3_server, tmp_path, hours):
    """Signed by the wrong clock, answered under the right one: the refusal is of the hour that was."""
    clocks = Clocks(tmp_path)
    if not clocks.there:
        pytest.skip(clocks.why)
    command = [sys.executable, "-c", SET_RIGHT, f"s3://{s3_server.bucket()}", s3_server.endpoint, str(3600 * hours)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **clocks.environment("one")}, capture_output=True, text=True, timeout=60
    )
    *refused, made = done.stdout.splitlines()
    assert made == "True", done.stderr
    assert len(refused) == 3
    assert all("refuses a wrong clock" in line for line in refused), refused


FULL = """
import os, sys
from pathlib import Path
from minio import Minio
from services.runtime.settings import Store
from services.runtime.store import StoreFull, open_store
endpoint, large = sys.argv[1], Path(sys.argv[2])
keys = {"access_key": "root", "secret_key": "rootsecret"}
Minio(endpoint, **keys, secure=False, region="us-east-1").make_bucket("small")
store = open_store(Store(url="s3://small", endpoint=endpoint, secure=False, **keys))
store.put("kept", b"old" * 1000)
for use in (
    lambda: store.put("kept", b"x" * 9_000_000),
    lambda: store.put_if_absent("new", b"x" * 9_000_000),
    lambda: store.put_content(large),
):
    try:
        use()
    except StoreFull as e:
        print("full:", str(e).replace(chr(10), " "))
assert store.get("kept") == b"old" * 1000
assert list(store.list()) == ["kept"]
assert store._client._list_multipart_uploads("small").uploads == []
store.put("new", b"x" * 500_000)
print("ok")
"""


def test_a_full_s3_server_loses_nothing(shared_equipment, tmp_path):
    """A real server on a real full disk, for small objects and for the parts of large ones."""
    mount, large = tmp_path / "disk", tmp_path / "large"
    mount.mkdir()
    large.write_bytes(b"x" * 17_000_000)
    server, port = shared_equipment / "s3" / "s3.sh", free_port()
    script = (
        f"mount -t tmpfs -o size=6m tmpfs {mount} && {server} start {mount} {port} >&2 || exit 77; "
        f'"$@"; code=$?; {server} stop {mount} KILL; exit $code'
    )
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", script, "sh", sys.executable, "-c", FULL,
         f"127.0.0.1:{port}", str(large)],
        cwd=ROOT, capture_output=True, text=True, timeout=90,
    )  # fmt: skip
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip(f"no small file system for the server here: {done.stderr[-200:]}")
    out = done.stdout.splitlines()
    assert out[-1] == "ok", done.stderr
    assert len(out) == 4
    assert all("no space left" in line and "what to do" in line for line in out[:3])


def test_a_server_that_is_out_of_order_is_waited_for(tmp_path):
    """What stands before a store in production (a balancer, a proxy) answers for it while it is away."""

    class Balancer(http.server.BaseHTTPRequestHandler):
        def answer(self):
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_PUT = do_HEAD = answer

        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Balancer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"127.0.0.1:{server.server_address[1]}"
        settings = Store(url="s3://bucket", endpoint=endpoint, secure=False, access_key="a", secret_key="b")
        with pytest.raises(StoreUnavailable, match="503") as caught:
            open_store(settings)
        server.shutdown()
    mended(caught)


def test_a_secret_file_that_cannot_be_read(s3_server, tmp_path):
    url = f"s3://{s3_server.bucket()}"
    (tmp_path / "sampler").write_text("rootsecret\n")
    settings = s3_server.settings(url=url, secret_key="", secret_key_file=str(tmp_path / "{service}"))
    open_store(settings, "sampler").put("a", b"1")
    with pytest.raises(UserError, match="secret key of gate cannot be read") as caught:
        open_store(settings, "gate")
    assert str(tmp_path / "gate") in mended(caught)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be made") as caught:
        open_store(Store(url=f"file://{tmp_path}/file/store"))
    mended(caught)


def test_a_folder_that_is_gone_for_a_while(tmp_path):
    """An unmounted store is down: what was in it is neither lost nor "missing"."""
    store, away = LocalStore(tmp_path / "store"), tmp_path / "away"
    store.put("a", b"1")
    (tmp_path / "store").rename(away)
    for use in (
        lambda: store.get("a"), lambda: store.get_into("a", io.BytesIO()), lambda: store.exists("a"),
        lambda: [*store.list()], lambda: store.put("b", b"2"), lambda: store.put_if_absent("b", b"2"),
    ):  # fmt: skip
        with pytest.raises(StoreUnavailable) as caught:
            use()
        mended(caught)
    away.rename(tmp_path / "store")
    assert store.get("a") == b"1"
    assert store.put_if_absent("b", b"2")


@pytest.fixture
def small_disk(tmp_path):
    """A real full disk: a tmpfs of 1 MiB in a mount namespace of its own. Returns a runner of Python code inside."""
    if shutil.which("unshare") is None:
        pytest.skip("no unshare: a small file system cannot be made")
    mount = tmp_path / "disk"
    mount.mkdir()
    script = f'mount -t tmpfs -o size=1m tmpfs {mount} && exec "$@"'
    base = ["unshare", "--mount", "--map-root-user", "sh", "-c", script, "sh"]
    if subprocess.run([*base, "true"], capture_output=True).returncode:
        pytest.skip("mount namespaces are not allowed here: a small file system cannot be made")

    def run(code):
        done = subprocess.run(
            [*base, sys.executable, "-c", code, str(mount)], cwd=ROOT, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_full_disk_loses_nothing(small_disk):
    """ENOSPC in the middle of an object: a clear error, the old object whole, no debris, and room is usable again."""
    code = """
import sys
from pathlib import Path
from services.runtime.store import StoreFull
from services.runtime.store_local import LocalStore
root = Path(sys.argv[1])
store = LocalStore(root)
store.put("kept", b"old" * 1000)
for write in (store.put, store.put_if_absent):
    for key in ("kept", "new"):
        if write == store.put_if_absent and key == "kept":
            continue
        try:
            write(key, b"x" * 3_000_000)
        except StoreFull as e:
            print("full:", str(e).replace(chr(10), " "))
assert store.get("kept") == b"old" * 1000
assert list(store.list()) == ["kept"]
assert list((root / ".incoming").iterdir()) == []
store.put("new", b"x" * 500_000)
print("ok")
"""
    out = small_disk(code).splitlines()
    assert out[-1] == "ok"
    assert len(out) == 4
    assert all("no space left" in line and "what to do" in line for line in out[:3])


def test_a_writer_killed_in_the_middle_leaves_nothing_visible(tmp_path):
    """Debris of a dead process is swept at the next opening; the objects are untouched."""
    store = LocalStore(tmp_path)
    store.put("a", b"1")
    code = """
import os, sys
from pathlib import Path
from services.runtime.store_local import LocalStore
store = LocalStore(Path(sys.argv[1]))
os.replace = lambda *_: os._exit(9)
store.put("a", b"2")
"""
    assert subprocess.run([sys.executable, "-c", code, tmp_path], cwd=ROOT, timeout=60).returncode == 9
    assert store.get("a") == b"1"
    assert len(list((tmp_path / ".incoming").iterdir())) == 1
    assert LocalStore(tmp_path).get("a") == b"1"
    assert list((tmp_path / ".incoming").iterdir()) == []
    assert list(store.list()) == ["a"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder(tmp_path):
    store = LocalStore(tmp_path)
    (tmp_path / ".incoming").chmod(0o500)
    with pytest.raises(UserError, match="cannot be written"):
        store.put("a", b"1")


def test_store_full_is_a_user_error():
    """So that the command line prints it and exits with 2."""
    assert issubclass(StoreFull, UserError)
