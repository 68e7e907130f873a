"""`rollstream recorded`: what is missing is named with exit 1; topics that are gone come back at the same offsets."""

import pytest
from kafka import KafkaAdminClient, TopicPartition

from infra.local.recorded import put_back, show_recorded
from infra.local.rundir import RunDir
from infra.local.stack import readable
from schemas import topics
from services.runtime.archive import read_raw, spans
from services.runtime.errors import UserError
from tests.services.runtime.bus import IN, OUT, RUN


@pytest.fixture
def run(recorders, tmp_path):
    """The folder of a run whose topics were recorded; one log had lost its beginning by then."""
    bus = recorders.bus
    bus.send(range(60))
    for number in range(8):
        bus.send_raw(OUT.name, b"%d" % number, partition=1, headers=[("h", b"\x00")])
        bus.send_raw(topics.POLICY_PUBLISHED.name, b"%d" % number, key=b"%d" % number)
    admin = KafkaAdminClient(bootstrap_servers=bus.bootstrap)
    admin.delete_records({TopicPartition(OUT.name, 1): 3})
    admin.close()
    assert recorders.start().ready().finish() == 0
    found = RunDir(tmp_path / "run")
    found.create(recorders.settings)
    return found


def test_what_is_recorded_is_listed_and_what_is_missing_named(run, recorders, capsys):
    assert show_recorded(run.root, None, verify=True) == 1
    out = capsys.readouterr().out
    assert f"{OUT.name}[1]: 0..2 (before the first recorded one) missing" in out
    assert out.count("missing") == 1
    victim = next(key for key in recorders.store.list(f"recorded/{RUN}/{IN.name}/"))
    recorders.store.put(victim, b"rubbish")
    assert show_recorded(run.root, run.config, verify=False) == 1
    assert "damaged" not in capsys.readouterr().out
    assert show_recorded(run.root, None, verify=True) == 1
    assert f"{victim} in {recorders.store} is damaged" in capsys.readouterr().out


def test_records_come_back_at_their_offsets_in_a_run_folder_of_their_own(run, recorders, tmp_path, capsys):
    before = recorders.on_topics()
    assert put_back(run.root, None, tmp_path / "again") == 0
    assert "put back" in capsys.readouterr().out
    with readable(RunDir(tmp_path / "again")) as cluster:
        found = spans(cluster, [name for name, _ in before])
        after = {place: list(read_raw(cluster, *place, found[place])) for place in before}
        assert found[OUT.name, 1].first == 3
    assert after == before
    with pytest.raises(UserError, match="holds a run already"):
        put_back(run.root, None, tmp_path / "again")


def test_nothing_recorded_and_gaps_in_the_middle_are_one_message(run, recorders, tmp_path):
    keys = list(recorders.store.list(f"recorded/{RUN}/{IN.name}/"))
    recorders.bus.send(range(60, 90))
    assert recorders.start().ready().finish() == 0
    for key in keys:
        recorders.store.delete(key)
    recorders.bus.send_raw(OUT.name, b"later", partition=1)
    again = put_back(run.root, None, tmp_path / "again")
    assert again == 0, "logs that begin later are logs still"
    (first, *_) = recorders.store.list(f"recorded/{RUN}/{topics.POLICY_PUBLISHED.name}/")
    recorders.store.put(first.rpartition("/")[0] + f"/{2:020}-{30:020}.lost", b"{}")
    with pytest.raises(UserError, match="1 gaps, the first is policy"):
        put_back(run.root, None, tmp_path / "third")
    for key in list(recorders.store.list("recorded/")):
        recorders.store.delete(key)
    with pytest.raises(UserError, match="nothing is recorded"):
        show_recorded(run.root, None, verify=False)
