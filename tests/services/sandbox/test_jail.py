"""The jail itself: it holds, it says why when it cannot, and no death of its owner leaves anything behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.runtime.errors import UserError
from services.runtime.jail import cgroup, encoder, launcher, selftest, tree
from services.runtime.jail.backend import Options
from services.runtime.jail.instance import Instance, labelled
from services.runtime.jail.launcher import JailHost
from services.runtime.jail.limits import JailFault, Limits
from services.runtime.jail.session import Program, Server, run_trial
from services.tasks import values

PROGRAM = Program({"m.py": "def f(x): return x\n"}, "m", "f", exception_names=values.EXCEPTION_NAMES)
ROOT = Path(__file__).parents[3]


def ask(host: JailHost) -> str:
    jail = host.launch(Limits())
    try:
        transcript = run_trial(jail, Limits(), PROGRAM, [(1,)], lambda i, a: True, 1.0, 1.0, 10.0, 15.0)
    finally:
        jail.close()
    return transcript.ending


def test_the_self_test_finds_no_deviation(host: JailHost) -> None:
    assert selftest.deviations(host) == []


def test_a_deviation_refuses_to_start_with_one_message(host: JailHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(selftest.EXPECTED, "network", "allowed")
    with pytest.raises(UserError, match=r"self-test failed.*network: 'EPERM', expected 'allowed'"):
        selftest.check(host)


def test_a_weaker_jail_is_noticed(host: JailHost, monkeypatch: pytest.MonkeyPatch) -> None:
    real = launcher.bwrap_arguments

    def weaker(*args: object) -> list[str]:
        line = real(*args)  # type: ignore[arg-type]  # passed through
        at = line.index("--ro-bind")
        return [*line[:at], "--ro-bind", "/", "/", *line[at + 3 :]]

    assert selftest.deviations(host) == []
    monkeypatch.setattr(launcher, "bwrap_arguments", weaker)
    with pytest.raises(UserError):
        selftest.check(host)


def test_missing_bubblewrap_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(UserError, match=r"bubblewrap.*missing") as caught:
        JailHost(1)
    assert "apt-get install bubblewrap" in str(caught.value)


def test_both_services_say_it_before_anything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    from services.runtime.settings import load
    from services.sandbox import main as sandbox
    from services.verifier import main as verifier

    monkeypatch.setenv("PATH", "/nonexistent")
    for service in (sandbox, verifier):
        with pytest.raises(UserError, match="bubblewrap"):
            service.main(load())


def test_a_broken_start_is_infrastructure_and_names_the_cause(host: JailHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "WORKER", "/gone.pyc")
    with pytest.raises(JailFault, match=r"no boot handshake.*gone\.pyc"):
        ask(host)
    monkeypatch.undo()
    assert ask(host) == "complete"


def test_a_dead_spawner_is_replaced(host: JailHost) -> None:
    os.kill(host.spawner_pid, signal.SIGKILL)
    faults = 0
    while True:
        try:
            assert ask(host) == "complete"
            break
        except JailFault:
            faults += 1
    assert faults == 1


def test_no_free_slot_is_infrastructure() -> None:
    with JailHost(1) as host:
        jail = host.launch(Limits())
        with pytest.raises(JailFault, match="no free sandbox slot"):
            host.launch(Limits())
        jail.close()
        assert ask(host) == "complete"


def test_jails_run_as_their_own_user_where_root_can_give_one(host: JailHost) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give slots users of their own")
    jail = host.launch(Limits())
    try:
        Server(jail, Limits(), 15.0)
        assert os.stat(f"/proc/{jail.pid}").st_uid == jail.uid >= 60_001
    finally:
        jail.close()


def test_an_instance_number_belongs_to_one_process(tmp_path: Path) -> None:
    first, second = Instance(tmp_path / "locks"), Instance(tmp_path / "locks")
    assert (first.number, second.number) == (0, 1)
    first.release()
    assert Instance(tmp_path / "locks").number == 0


def test_closing_leaves_nothing() -> None:
    host = JailHost(2)
    label, layout = host.instance.label, host.layout
    host.launch(Limits(), Options(files={"a.py": "A = 1\n"}) if host.shows_files else Options())
    host.close()
    assert labelled(label) == []
    assert list(cgroup.leftovers(layout, f"{label}-")) == []
    assert not host.fixtures.folder.exists()


PLAIN = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.binary(max_size=8),
        st.integers(-(10**4299), 10**4299),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.one_of(st.text(max_size=4), st.integers()), inner, max_size=4),
        st.sets(st.one_of(st.text(max_size=4), st.integers()), max_size=4),
        st.frozensets(st.integers(), max_size=4),
    ),
    max_leaves=12,
)  # fmt: skip


def plain_encoder() -> encoder.Encoder:
    return encoder.Encoder(encoder.Space({"names": values.EXCEPTION_NAMES, "handles": ()}))


@settings(max_examples=300, deadline=None)
@given(PLAIN)
def test_the_worker_writes_exactly_what_the_value_codec_writes(value: object) -> None:
    assert plain_encoder().answer(value) == values.dumps(value)


REFUSED = {
    "digits": 10**4300, "bits": 1 << 20_000, "surrogate": "\ud800", "object": object(), "type": {1: {2: object}},
    "nodes": [[]] * 100_001, "function": print,
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_the_worker_refuses_what_the_value_codec_refuses(name: str) -> None:
    with pytest.raises(encoder.Refused):
        plain_encoder().answer(REFUSED[name])
    with pytest.raises(values.Unencodable):
        values.dumps(REFUSED[name])


def test_the_worker_names_exceptions_as_the_value_codec_does() -> None:
    class Own(KeyError):
        pass

    class Both(Own, UnicodeError, OSError):
        pass

    assert plain_encoder().raised(Both()) == "KeyError+UnicodeError+OSError"
    for error in (
        Own(),
        Both(),
        ValueError(),
        KeyboardInterrupt(),
        UnicodeDecodeError("a", b"", 0, 1, "x"),
        TabError(),
    ):
        assert plain_encoder().raised(error) == "+".join(values.exception_names(error))
        assert plain_encoder().answer(error) == values.dumps(error)


@pytest.mark.parametrize(("text", "version"), [
    ("9:name=systemd:/\n8:pids:/x\n4:memory:/y\n0::/z\n",
     {"systemd": "/", "pids": "/x", "memory": "/y", "unified": "/z"}),
    ("3:cpu,cpuacct:/a:b\n", {"cpu": "/a:b", "cpuacct": "/a:b"}),
])  # fmt: skip
def test_own_groups_are_read_from_proc(text: str, version: dict[str, str]) -> None:
    assert cgroup.own_groups(text) == version


def test_without_control_groups_the_jail_still_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "detect", lambda: cgroup.Layout(0, {}))
    bomb = Program({"m.py": "def f(x): return len(b'x' * (400 << 20))\n"}, "m", "f", exception_names=("MemoryError",))
    with JailHost(2) as host:
        assert selftest.deviations(host) == []
        jail = host.launch(Limits())
        transcript = run_trial(jail, Limits(), bomb, [(1,)], lambda i, a: True, 1.0, 1.0, 10.0, 15.0, 16)
        usage = jail.close()
    assert [(answer.kind, answer.text) for answer in transcript.answers] == [("x", '{"e":"MemoryError"}')]
    assert usage.cpu_s is not None  # from bubblewrap's own accounting
    assert (usage.oom_kills, usage.pids_denied) == (0, 0)  # what the watch did: the kernel's bound of a process held
    assert usage.outer_kills is not None
