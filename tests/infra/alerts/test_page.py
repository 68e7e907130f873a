"""The operations page agrees with the code where it repeats it: upgrade order, links, commands, settings."""

from __future__ import annotations

import re
from pathlib import Path

from schemas.topics import ALL
from services.runtime.settings import RunSettings

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "infra" / "k8s" / "README.md"
TEXT = PAGE.read_text()
OBSERVERS = {"recorder", "monitor"}


def rows(title: str) -> list[list[str]]:
    """Cells of the first table of a section."""
    section = re.split(r"^## ", TEXT, flags=re.MULTILINE)
    text = next(part for part in section if part.startswith(title))
    table = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def names(cell: str) -> set[str]:
    return {name.strip("* ") for name in cell.split(",")} - {""}


def test_the_order_of_an_upgrade_is_that_of_the_declared_topics():
    said = {row[0]: row[1:] for row in rows("Upgrading one service alone")}
    for topic in ALL:
        readers, writers = set(topic.consumers) - OBSERVERS, set(topic.producers)
        name = topic.name.removesuffix(".v1")
        if not readers:
            assert name not in said
            assert f"{name} is read by people" in TEXT
            continue
        first, then = said.pop(name)
        assert names(first) == readers - writers, name
        assert names(then) == writers, name
        both = {writer.strip("* ") for writer in then.split(",") if writer.strip().endswith("*")}
        assert both == readers & writers, f"{name}: who reads what it writes"
    assert not said


def test_every_link_leads_somewhere():
    headings = re.findall(r"^#+ (.+)$", TEXT, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    for anchor in re.findall(r"\]\(#([^)]+)\)", TEXT):
        assert anchor in anchors, anchor
    for path in re.findall(r"`((?:infra|services|tests|schemas|components|overlays)/[\w./-]+)`", TEXT):
        where = ROOT / path if path.split("/")[0] not in ("components", "overlays") else PAGE.parent / path
        assert where.exists(), path


def test_every_setting_that_is_named_exists():
    fields = RunSettings.model_fields
    for section, key in re.findall(r"`(\w+)\.(\w+)(?: = [^`]*)?`", TEXT):
        if section in fields and key not in ("toml",):
            kind = fields[section].annotation
            assert key in kind.model_fields, f"{section}.{key}"
