"""Full disks, taken ports, second instances, unsafe addresses: a clear word, and nothing lost."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import TransactionalIdAuthorizationFailedError
from kafka.structs import OffsetAndMetadata

from infra.broker import flush, segment
from infra.broker.broker import Broker, Settings
from infra.broker.flush import Flusher, FsyncPolicy
from infra.broker.journal import Journal
from infra.broker.testing import ROOT, running_broker
from tests.contract.broker.conftest import consumer, eventually, producer, read_all
from tests.contract.broker.raw import RawClient, batch
from tests.infra.broker.helpers import append, open_log, stamped, values

STORAGE_ERROR = 56


def _run(*arguments: str, seconds: float = 20) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "infra.broker", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def _one_line(result: subprocess.CompletedProcess[str], *words: str) -> None:
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1, result.stderr
    for word in words:
        assert word in result.stderr


def test_second_instance_is_refused(tmp_path: Path) -> None:
    """Two brokers never write one directory; the message names the holder."""
    with running_broker(tmp_path / "data") as broker:
        _one_line(_run("--data", str(tmp_path / "data")), f"pid {broker.pid}", "stop it first")
        broker.kill()
        broker.start()  # the lock went with the process


def test_busy_port_is_named(tmp_path: Path) -> None:
    """A taken port says so and what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        _one_line(_run("--data", str(tmp_path / "data"), "--port", port), port, "--port 0")


def _two_addresses(name: str, port: object, *rest: object, **more: object) -> list[object]:
    """`localhost` as a machine resolves it whose hosts file names both."""
    return [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", int(str(port or 0)), 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", int(str(port or 0)))),
    ]


def test_a_name_with_two_addresses_has_one_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients are told one number, and try either address."""
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    monkeypatch.setattr(socket, "getaddrinfo", _two_addresses)

    async def ports() -> list[int]:
        broker = Broker(Settings(tmp_path / "data", host="localhost"))
        await broker.start()
        assert broker._server is not None
        found = [sock.getsockname()[1] for sock in broker._server.sockets]
        await broker.stop()
        return [broker.port, *found]

    port, *listening = asyncio.run(ports())
    assert listening == [port, port]


def test_an_ipv6_address_before_it_is_told_without_its_brackets(tmp_path: Path) -> None:
    """Clients take the host of the metadata as it stands there."""
    broker = Broker(Settings(tmp_path / "data", advertise="[::1]:19092"))
    assert broker.advertised == ("::1", 19092)
    asyncio.run(broker.stop())


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--advertise", "::1:19092"], "HOST:PORT"),
        (["--host", "0.0.0.0"], "loopback"),
        (["--host", "192.168.1.10"], "loopback"),
        (["--fsync", "sometimes"], "interval:MS"),
    ],
)
def test_unsafe_or_unknown_settings_are_refused(tmp_path: Path, arguments: list[str], word: str) -> None:
    """The broker has no authentication, so it listens on loopback only; a policy it does not know is an error."""
    _one_line(_run("--data", str(tmp_path / "data"), *arguments), word)


def test_damaged_registry_is_not_overwritten(tmp_path: Path) -> None:
    """An unreadable registry stops the start; the file is left for a person to look at."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "meta.json").write_text("{ damaged")
    _one_line(_run("--data", str(data)), "meta.json")
    assert (data / "meta.json").read_text() == "{ damaged"


@pytest.mark.parametrize("policy", ["never", "interval:20", "always"])
def test_sigterm_ends_cleanly_under_every_policy(tmp_path: Path, policy: str) -> None:
    """Records are acknowledged under every fsync policy; SIGTERM ends with 0 and takes the ready file away."""
    with running_broker(tmp_path / "data", fsync=policy) as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        admin.create_topics([NewTopic("t", 1, 1)])
        admin.close()
        sender = producer(broker.bootstrap)
        for number in range(50):
            sender.send("t", b"%d" % number)
        sender.flush(20)
        sender.close()
        reader = consumer(broker.bootstrap, group_id="g")
        reader.assign([TopicPartition("t", 0)])
        reader.commit({TopicPartition("t", 0): OffsetAndMetadata(9, "", -1)})
        reader.close()
        assert broker.stop() == 0
        assert not (tmp_path / "data.ready").exists()
        broker.start()
        assert len(read_all(broker.bootstrap, "t")) == 50


def test_always_acknowledges_only_after_the_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under `always` the answer waits for fsync, one sync serves all who wait, and a failed sync is told to them."""
    log = open_log(tmp_path / "log")
    journal = Journal(tmp_path / "journal")
    synced: list[int] = []
    fail: list[OSError] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        time.sleep(0.05)
        if fail:
            raise fail.pop()
        real(fd)
        synced.append(fd)

    monkeypatch.setattr(flush.os, "fsync", fsync)

    async def run() -> None:
        flusher = Flusher(FsyncPolicy.parse("always"), journal)
        append(log, stamped([b"a"]))
        flusher.wrote(log)
        first = flusher.synced()
        await asyncio.sleep(0.01)
        assert not first.done()
        assert synced == []
        append(log, stamped([b"b"]))
        flusher.wrote(log)
        others = [flusher.synced() for _ in range(5)]
        await asyncio.gather(first, *others)
        assert len(synced) == 3  # the segment and its directory for the first, the segment once for all the others
        append(log, stamped([b"c"]))
        flusher.wrote(log)
        fail.append(OSError(errno.EIO, "disk"))
        with pytest.raises(OSError, match="disk"):
            await flusher.synced()
        assert log.unsynced  # it is tried again

    asyncio.run(run())
    log.close()
    journal.close()


@pytest.mark.parametrize("partial", [0, 7, 70])
def test_a_failed_append_leaves_the_log_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partial: int
) -> None:
    """The disk fills after some bytes of a batch: they are cut, offsets do not move, the next append works."""
    log = open_log(tmp_path)
    append(log, stamped([b"before"], producer=(5, 0, 0)))
    size = log.segments[-1].path.stat().st_size
    real = segment.write_at

    def write_at(fd: int, data: Any, position: int) -> None:
        os.pwrite(fd, bytes(data)[:partial], position)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(segment, "write_at", write_at)
    with pytest.raises(OSError, match="No space"):
        append(log, stamped([b"lost"], producer=(5, 0, 1)))
    assert log.segments[-1].path.stat().st_size == size
    assert log.log_end == 1
    monkeypatch.setattr(segment, "write_at", real)
    assert append(log, stamped([b"after"], producer=(5, 0, 1))) == 1
    assert values(log) == [(0, b"before"), (1, b"after")]
    log.close()
    again = open_log(tmp_path)
    assert values(again) == [(0, b"before"), (1, b"after")]
    again.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB; skips where it cannot be mounted."""
    point = tmp_path / "disk"
    point.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(point)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"cannot mount a small file system here: {done.stderr.strip()}")
    yield point
    subprocess.run(["umount", "-l", str(point)], check=True)


def test_full_disk_is_retriable_and_heals(small_disk: Path) -> None:
    """A full disk answers KAFKA_STORAGE_ERROR, reads go on, and after space is freed producing does too."""
    filler = small_disk / "filler"
    with running_broker(small_disk / "data", log_level="CRITICAL") as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        admin.create_topics([NewTopic("t", 1, 1)])
        with RawClient(broker.bootstrap) as raw:
            producer_id, stored = raw.producer_id(), 0
            filler.write_bytes(bytes(900_000))
            while (answer := raw.produce("t", batch([bytes(100_000)], (producer_id, 0, stored)))).error_code == 0:
                stored += 1
            assert answer.error_code == STORAGE_ERROR
            assert stored > 3
            refused = admin.create_topics([NewTopic("u", 1, 1)], raise_errors=False)["topics"][0]["error_code"]
            assert refused in (0, STORAGE_ERROR)  # an empty topic may still fit
            assert len(read_all(broker.bootstrap, "t")) == stored
            filler.unlink()
            answer = raw.produce("t", batch([bytes(100_000)], (producer_id, 0, stored)))
            assert (answer.error_code, answer.base_offset) == (0, stored)
        admin.close()
        broker.kill()
        broker.start()
        assert len(read_all(broker.bootstrap, "t")) == stored + 1


def test_full_disk_does_not_lose_what_a_client_sends(small_disk: Path) -> None:
    """kafka-python keeps retrying while the disk is full, and everything arrives once when it is not."""
    filler = small_disk / "filler"
    with running_broker(small_disk / "data", log_level="CRITICAL") as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        admin.create_topics([NewTopic("t", 1, 1)])
        admin.close()
        filler.write_bytes(bytes(1_900_000))
        sender = producer(broker.bootstrap, retry_backoff_ms=50)
        futures = [sender.send("t", bytes(20_000)) for _ in range(20)]
        time.sleep(0.7)
        assert not futures[-1].is_done
        filler.unlink()
        assert [future.get(20).offset for future in futures] == list(range(20))
        sender.close()


def test_frames_may_arrive_in_any_pieces(tmp_path: Path) -> None:
    """Byte by byte, many at once, larger than any buffer: the answers are the same."""
    with running_broker(tmp_path / "data") as broker, RawClient(broker.bootstrap) as raw:
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        admin.create_topics([NewTopic("t", 1, 1, topic_configs={"max.message.bytes": "20000000"})])
        admin.close()
        real, pieces = raw.socket.sendall, []
        raw.socket = _Recorder(raw.socket, pieces)
        assert raw.produce("t", batch([b"tiny"])).base_offset == 0
        assert raw.produce("t", batch([bytes(9_000_000)])).base_offset == 1
        small, large = pieces[0], pieces[1]
        for byte in small:
            real(bytes([byte]))
        real(small * 50 + large[:5_000_001])
        time.sleep(0.05)
        real(large[5_000_001:] + small)
        for _ in range(53):
            raw.receive()
        assert len(read_all(broker.bootstrap, "t", start=50)) == 5


class _Recorder:
    """A socket that remembers what was sent."""

    def __init__(self, inner: socket.socket, pieces: list[bytes]) -> None:
        self._inner, self._pieces = inner, pieces

    def sendall(self, data: bytes) -> None:
        self._pieces.append(bytes(data))
        self._inner.sendall(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_a_reader_that_does_not_read_holds_nobody_up(tmp_path: Path) -> None:
    """Answers to a stalled client are bounded in memory and do not disturb the others."""
    import psutil

    with running_broker(tmp_path / "data") as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        admin.create_topics([NewTopic("t", 1, 1)])
        admin.close()
        from kafka.protocol.consumer import FetchRequest

        with RawClient(broker.bootstrap) as writer, RawClient(broker.bootstrap) as stalled:
            for _ in range(8):
                assert writer.produce("t", batch([bytes(1_000_000)])).error_code == 0
            topic = FetchRequest.FetchTopic
            for _ in range(60):
                stalled.send(
                    FetchRequest(
                        replica_id=-1,
                        max_wait_ms=0,
                        min_bytes=1,
                        max_bytes=1 << 24,
                        isolation_level=0,
                        topics=[
                            topic(
                                topic="t",
                                partitions=[
                                    topic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 24)
                                ],
                            )
                        ],
                    ),
                    4,
                )
            time.sleep(0.3)
            assert writer.produce("t", batch([b"prompt"])).error_code == 0
            assert psutil.Process(broker.pid).memory_info().rss < 200 * 2**20


def test_transactions_are_refused_at_once(tmp_path: Path) -> None:
    """A transactional producer is told so within moments instead of waiting for a coordinator."""
    with running_broker(tmp_path / "data") as broker:
        sender = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="t", max_block_ms=10_000)
        with pytest.raises(TransactionalIdAuthorizationFailedError):
            sender.init_transactions()
        sender.close(0)


def test_idle_costs_nothing(tmp_path: Path) -> None:
    """With clients connected and waiting, the broker's process hardly uses the cpu."""
    import psutil

    with running_broker(tmp_path / "data") as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        admin.create_topics([NewTopic("t", 12, 1)])
        readers = [consumer(broker.bootstrap, "t", group_id=f"g{n}") for n in range(3)]
        eventually(lambda: all(reader.poll(50) is not None and reader.assignment() for reader in readers))
        before = psutil.Process(broker.pid).cpu_times()
        time.sleep(1.5)
        after = psutil.Process(broker.pid).cpu_times()
        assert after.user + after.system - before.user - before.system < 0.15
        for reader in readers:
            reader.close()
        admin.close()
        os.kill(broker.pid, signal.SIGTERM)
