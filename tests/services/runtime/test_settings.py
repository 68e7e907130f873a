"""Protects a person from a bad configuration: one clear message that says what, where and what to do."""

import tomllib

import pytest

from services.runtime.errors import UserError
from services.runtime.settings import dump_toml, load


def write(tmp_path, text):
    path = tmp_path / "run.toml"
    path.write_text(text)
    return path


def message(path, **more):
    with pytest.raises(UserError) as caught:
        load(path, **more)
    text = str(caught.value)
    assert "what to do:" in text
    return text


def test_broken_toml_names_file_and_line(tmp_path):
    path = write(tmp_path, 'run_id = "a"\n[kafka\n')
    text = message(path)
    assert str(path) in text
    assert "line 2" in text


def test_missing_file(tmp_path):
    assert "no such configuration file" in message(tmp_path / "nowhere.toml")


def test_unknown_key_is_named(tmp_path):
    """A misspelt setting that is ignored costs a night."""
    assert "admission.max_lagg" in message(write(tmp_path, "[admission]\nmax_lagg = 3\n"))


def test_unknown_table_is_named(tmp_path):
    assert "admision" in message(write(tmp_path, "[admision]\nmax_lag = 3\n"))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("[kafka]\npartitions = 0", "kafka.partitions"),
        ("[runtime]\nlinger_ms = 50", "runtime.linger_ms"),
        ("[sampling]\ntop_p = 1.5", "sampling.top_p"),
        ("[verifier]\nformat_weight = 0.4\nlength_weight = 0.7", "format_weight + length_weight"),
        ('[dispatch]\ngroup_size = "many"', "dispatch.group_size"),
        ('run_id = "a b"', "run_id"),
    ],
)
def test_out_of_range_names_the_setting(tmp_path, text, name):
    assert name in message(write(tmp_path, text + "\n"))


def test_several_mistakes_are_one_message(tmp_path):
    text = message(write(tmp_path, "[kafka]\npartitions = 0\n[admission]\nmax_lag = -1\n"))
    assert "kafka.partitions" in text
    assert "admission.max_lag" in text


def test_environment_wins_over_file(tmp_path, monkeypatch):
    monkeypatch.setenv("ROLLSTREAM_ADMISSION__MAX_LAG", "7")
    settings = load(write(tmp_path, "[admission]\nmax_lag = 3\n"))
    assert settings.admission.max_lag == 7


def test_bad_environment_is_a_clear_message(monkeypatch):
    monkeypatch.setenv("ROLLSTREAM_ADMISSION__MAX_LAG", "soon")
    assert "admission.max_lag" in message(None)


def test_overrides_merge_into_a_section(tmp_path):
    settings = load(write(tmp_path, "[kafka]\npartitions = 3\n"), kafka={"bootstrap": "h:1"}, run_id="x")
    assert (settings.kafka.partitions, settings.kafka.bootstrap, settings.run_id) == (3, "h:1", "x")


def test_dump_reads_back_and_hides_the_secret():
    settings = load(store={"url": "s3://b", "secret_key": "hush", "access_key": 'a"b'}, run_id="x")
    text = dump_toml(settings)
    assert "hush" not in text
    assert "hush" not in repr(settings)
    again = tomllib.loads(text)
    assert again["store"]["access_key"] == 'a"b'
    assert (
        load(**again).model_dump()
        == settings.model_copy(update={"store": settings.store.model_copy(update={"secret_key": ""})}).model_dump()
    )
