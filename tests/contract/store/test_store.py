"""One contract for every object store: whole objects, conditional create, content addresses that are checked."""

import hashlib
import threading

import pytest

from services.runtime.store import CorruptObject, MissingObject, content_key, open_store


def test_put_get_replace_delete(store):
    store.put("a/b.bin", b"one")
    assert store.get("a/b.bin") == b"one"
    store.put("a/b.bin", b"two")
    assert store.get("a/b.bin") == b"two"
    assert store.exists("a/b.bin")
    store.delete("a/b.bin")
    store.delete("a/b.bin")
    assert not store.exists("a/b.bin")


def test_missing_object_is_named(store):
    for read in (store.get, store.get_content):
        with pytest.raises(MissingObject, match="no/such"):
            read("no/such")
    assert not store.exists("no/such")


def test_empty_and_large_objects(store, tmp_path):
    """Zero bytes, and a file over the size of one multipart part."""
    store.put("empty", b"")
    assert store.get("empty") == b""
    big = tmp_path / "big"
    big.write_bytes(bytes(range(256)) * 4096 * 12)
    store.put("big", big)
    assert hashlib.sha256(store.get("big")).digest() == hashlib.sha256(big.read_bytes()).digest()


def test_put_if_absent_never_overwrites(store, tmp_path):
    assert store.put_if_absent("once", b"first")
    assert not store.put_if_absent("once", b"second")
    assert store.get("once") == b"first"
    path = tmp_path / "file"
    path.write_bytes(b"from a file")
    assert store.put_if_absent("twice", path)
    assert store.get("twice") == b"from a file"


def test_of_many_conditional_writers_one_wins(store_settings):
    """Two trainers that believe to be the only one must not both publish version 7."""
    stores = [open_store(store_settings) for _ in range(6)]
    won, start = [], threading.Barrier(6)

    def write(n):
        start.wait(10)
        if stores[n].put_if_absent("manifest", f"writer {n}".encode() * 1000):
            won.append(n)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    assert len(won) == 1
    assert stores[0].get("manifest") == f"writer {won[0]}".encode() * 1000


def test_list_by_prefix_in_order(store):
    for key in ("b/2", "a/1", "a/10", "ab", "a/x/y"):
        store.put(key, b"x")
    assert list(store.list()) == ["a/1", "a/10", "a/x/y", "ab", "b/2"]
    assert list(store.list("a/")) == ["a/1", "a/10", "a/x/y"]
    assert list(store.list("a/1")) == ["a/1", "a/10"]
    assert list(store.list("zzz/")) == []


def test_content_addressing(store, tmp_path):
    path = tmp_path / "same"
    path.write_bytes(b"weights")
    key = store.put_content(b"weights")
    digest = hashlib.sha256(b"weights").hexdigest()
    assert key == f"sha256/{digest[:2]}/{digest}" == content_key(digest)
    assert store.put_content(path) == key
    assert store.get_content(key) == b"weights"
    assert list(store.list("sha256/")) == [key]


def test_objects_come_into_files_with_their_digest(store, tmp_path):
    data = bytes(range(256)) * 10_000
    store.put("a/b", data)
    with (tmp_path / "out").open("wb") as out:
        assert store.get_into("a/b", out) == hashlib.sha256(data).hexdigest()
        with pytest.raises(MissingObject, match="no/such"):
            store.get_into("no/such", out)
    assert (tmp_path / "out").read_bytes() == data


def test_large_files_are_made_once(store, tmp_path):
    """Above the size of one upload the same promises hold."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"1" * 17_000_000)
    second.write_bytes(b"2" * 17_000_000)
    assert store.put_if_absent("runs/r/big", first)
    assert not store.put_if_absent("runs/r/big", second)
    assert store.put_content(first) == store.put_content(first)
    assert store.get("runs/r/big") == store.get_content(store.put_content(first)) == first.read_bytes()


def test_rot_is_noticed_on_read(store):
    """A changed byte must never become a weight."""
    key = store.put_content(b"weights")
    store.put(key, b"weightz")
    with pytest.raises(CorruptObject, match=key):
        store.get_content(key)


@pytest.mark.parametrize(
    "key", ["", "/etc/passwd", "../up", "a//b", "a/../b", ".hidden", "a/.b", "ü", "a b", "x" * 600]
)
def test_keys_that_could_leave_the_store_are_refused(store, key):
    for use in (lambda: store.put(key, b""), lambda: store.get(key), lambda: store.delete(key)):
        with pytest.raises(ValueError, match="no object key"):
            use()


def test_reopening_sees_what_was_stored(store, store_settings):
    store.put("kept", b"x")
    assert open_store(store_settings).get("kept") == b"x"


def test_no_character_of_a_place_means_anything_else(store_settings):
    """`try#1` and `try#2` are two stores, as are `a b` and `a%20b`."""
    names = ("try", "try#1", "try#2", "a b", "a%20b", "a?b=1", "a+b", "é", "a;b&c", "[x]")
    urls = [f"{store_settings.url}/{name}" for name in names]
    for name, url in zip(names, urls, strict=True):
        store = open_store(store_settings.model_copy(update={"url": url}))
        assert list(store.list()) == []
        store.put("which", name.encode())
        store.put_if_absent("other", b"x" * 10)
    for name, url in zip(names, urls, strict=True):
        store = open_store(store_settings.model_copy(update={"url": url}))
        assert (store.get("which"), sorted(store.list())) == (name.encode(), ["other", "which"])
