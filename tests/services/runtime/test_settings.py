"""Protects a person from a bad configuration: one clear message that says what, where and what to do."""

import tomllib
from pathlib import Path

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


@pytest.mark.parametrize(("raw", "says"), [
    (b"x = " + b"[" * 4000, "nested too deep"),
    (b"x = " + b"[" * 100_000, "line 1 is longer"),
    (b"seed = 1\na" + b".a" * 9000 + b" = 1", "line 2 is longer"),  # 650 MB in the parser
    (b"# fine\nseed = " + b"9" * 5000, "4300 digits"),
    (b'run_id = "a\0"', "line 1"),
    (b"seed = 1\n# \xff", "not UTF-8.*line 2"),
    ("seed = 1".encode("utf-16"), "not UTF-8.*line 1"),
    (b"seed = 1\nseed = 2\n", "line 2"),
    (b"#\n" * 200_000, "more than"),
    (b"dispatch = 3", "dispatch"),
    (b"[dispatch]\nupdates = [1]", "dispatch.updates"),
])  # fmt: skip
def test_whatever_a_configuration_holds_is_one_message(tmp_path: Path, raw: bytes, says: str) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(raw)
    with pytest.raises(UserError, match=says) as caught:
        load(path)
    assert caught.value.where == str(path)
    assert caught.value.do


def test_what_is_no_configuration_file_is_one_message(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.toml", tmp_path / "a\0b"):
        with pytest.raises(UserError) as caught:
            load(path)
        assert caught.value.do
    marked = tmp_path / "marked.toml"
    marked.write_bytes(b"\xef\xbb\xbfseed = 4\r\n")
    assert load(marked).seed == 4
