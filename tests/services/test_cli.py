"""The commands share their ways of naming a run, so that what is typed for one works for the next."""

import pytest
import typer.main

from services.cli import app
from services.runtime.overrides import parse_overrides

READS = ("audit", "tap", "trial", "verdicts", "recorded", "backup")


@pytest.mark.parametrize("name", READS)
def test_a_command_that_looks_at_a_run_takes_its_folder_as_run_dir(name):
    command = typer.main.get_command(app).commands[name]
    assert "--run-dir" in [option for parameter in command.params for option in parameter.opts]


def test_audit_takes_the_folder_as_its_argument_too(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("infra.local.looks.audit_run", lambda folder, bootstrap: asked.append(folder) or 0)
    for words in ([str(tmp_path)], ["--run-dir", str(tmp_path)]):
        with pytest.raises(SystemExit) as end:
            app(["audit", *words])
        assert end.value.code == 0
    assert asked == [tmp_path, tmp_path]


@pytest.mark.parametrize("text", ["[" * 3000, "9" * 5000, "\ud800", "{"])
def test_an_override_that_is_no_toml_is_text(text):
    assert parse_overrides([f"tasks.source={text}"], print) == {"tasks": {"source": text}}
