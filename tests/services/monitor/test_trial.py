"""One trial as a conversation: nothing missing, nothing invented, the audit's own fates, text where it can be had."""

from __future__ import annotations

import io
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from schemas.record import Record
from schemas.rollout import Invocation, RolloutRequested
from schemas.sandbox import SandboxCommand
from services.agent.harness import TOKENIZER_FILE
from services.agent.tokenizer import ACT, BEGIN, END, Tokenizer
from services.monitor.conversation import gather
from services.monitor.trial import show_trial
from services.runtime.checkpoints import CheckpointMeta, publish_checkpoint
from services.runtime.errors import UserError
from services.runtime.ledger import audit
from services.runtime.settings import Store
from services.runtime.store import open_store
from tests.services.monitor.synthetic import Run

RECORDS = Run(updates=5).build()


def text_of(records: Any, trial_id: str, **options: Any) -> str:
    out = io.StringIO()
    show_trial(records, trial_id, out=out, **options)
    return out.getvalue()


def trials() -> list[str]:
    return [r.trial_id for r in RECORDS if isinstance(r, RolloutRequested)]


def test_every_fate_is_the_audits() -> None:
    """`trial` and `audit` must never tell two stories about one trial, at whatever moment the topics are read."""
    for end in (len(RECORDS), len(RECORDS) // 2, len(RECORDS) // 3):
        part = RECORDS[:end]
        counts: dict[str, int] = {}
        for trial_id in {r.trial_id for r in part if isinstance(r, RolloutRequested)}:
            trial = gather(part, trial_id)
            assert trial is not None
            fate = trial.fate.name + (f"/{trial.fate.reason}" if trial.fate.reason else "")
            counts[fate] = counts.get(fate, 0) + 1
        assert counts == audit(part).counts


def test_order_of_reading_and_redelivery_change_nothing() -> None:
    """Topics are read partition by partition and records may come twice: the conversation stays the same."""
    trial_id = "demo/00000001/2"
    straight = text_of(RECORDS, trial_id)
    shuffled = list(RECORDS)
    random.Random(3).shuffle(shuffled)
    assert text_of(shuffled, trial_id) == straight
    twice = text_of([*RECORDS, *RECORDS], trial_id)
    assert "delivered twice" in twice
    assert [x for x in twice.splitlines() if "delivered twice" not in x] == straight.splitlines()


def test_the_conversation_has_every_part() -> None:
    """Task, versions, seed, tokens, log-probabilities, tool, observation, checks, verdict, group, admission, fate."""
    text = text_of(RECORDS, "demo/00000001/2", full=True)
    parts = (
        "task binary_search-0001", "seed 1002", "attempt 0", "turn 0 · policy v0 (torch)", "logp mean", "stop_token",
        '→ edit line=3 text="return low"', "│ FAIL f(3)", "│ want 2 got 1", "public checks fail",
        "ended as submitted", "check run 0", "verdict: ", "group demo/00000001: mixed", "admitted by admission",
        "age by stage", "fate: trained in update demo/u000001", "prefix 5f5f",
    )  # fmt: skip
    for part in parts:
        assert part in text, part
    assert text.index("turn 0") < text.index("turn 1") < text.index("ended as") < text.index("verdict: ")
    invocation = next(r for r in RECORDS if isinstance(r, Invocation) and r.trial_id == "demo/00000001/2")
    assert f"ids [{', '.join(str(i) for i in invocation.sampled_ids)}]" in text


def test_an_exclusion_says_why() -> None:
    """Whoever asks where a trial went gets the reason and the stage that decided."""
    lost = next(r for r in RECORDS if getattr(r, "contrast", "") == "unresolved" and r.TYPE.name == "group.closed")
    text = text_of(RECORDS, lost.member_trials[1])
    assert "fate: excluded as unresolved by the admission service" in text
    assert "infrastructure: workspace gone" in text
    assert "verdict: unknown" in text


def test_json_holds_every_record_whole() -> None:
    """Programs read the same trial without loss."""
    value = json.loads(text_of(RECORDS, "demo/00000001/2", as_json=True))
    assert value["fate"]["name"] == "trained"
    mine = [r for r in RECORDS if isinstance(r, Invocation) and r.trial_id == "demo/00000001/2"]
    turns = value["attempts"][0]["turns"]
    assert [t["invocation"]["sampled_ids"] for t in turns] == [i.sampled_ids.tolist() for i in mine]
    assert turns[0]["operations"][0]["result"]["observation"] == "FAIL f(3)\nwant 2 got 1"
    assert value["updates"][0]["update_id"] == "demo/u000001"


def test_an_unfinished_trial_says_what_it_waits_for() -> None:
    """A trial under way can be read at any moment, from its first record on."""
    mine = [r for r in RECORDS if getattr(r, "trial_id", None) == "demo/00000001/2"]
    for end in range(1, len(mine) + 1):
        trial = gather(mine[:end], "demo/00000001/2")
        assert trial is not None
        assert trial.fate.name == "in_flight"
        assert trial.fate.sentence
        assert text_of(mine[:end], "demo/00000001/2")


def test_a_second_attempt_follows_the_first() -> None:
    """An infrastructure retry is a new attempt of the same trial, and both are shown, in order."""
    trial_id = "demo/00000001/2"
    mine = [r for r in RECORDS if getattr(r, "trial_id", None) == trial_id]
    again: list[Record] = []
    for record in mine:
        changes = {
            n: getattr(record, n).replace("/2.0.", "/2.1.")
            for n in ("invocation_id", "operation_id")
            if hasattr(record, n)
        }
        if hasattr(record, "attempt"):
            again.append(replace(record, attempt=1, **changes))
    text = text_of([*again, *RECORDS], trial_id)
    assert text.index("attempt 0") < text.index("attempt 1")
    assert text.count("turn 0 ·") == 2


def test_an_operation_that_was_asked_again_says_why_it_stands_there_twice() -> None:
    """A lost workspace is made anew by the same operation under another id: not a second action of the policy."""
    trial_id = "demo/00000001/2"
    command = next(r for r in RECORDS if isinstance(r, SandboxCommand) and r.trial_id == trial_id)
    head, _, index = command.operation_id.rpartition(".")
    again = replace(command, operation_id=f"{head}.{int(index) + 2}", history=('["edit", "1: pass"]',))
    text = text_of([*RECORDS, again], trial_id)
    assert text.count("asked again in a workspace made anew: 1 earlier operations first") == 1
    assert "asked again" not in text_of(RECORDS, trial_id)


def test_text_comes_from_the_runs_own_tokenizer(tmp_path: Path) -> None:
    """Sampled text is readable, with control tokens spelt out; characters that move a terminal are not passed on."""
    tokenizer = Tokenizer.train(["def f(x): return low edit 3: return low"], 300)
    tokenizer.save(tmp_path / TOKENIZER_FILE)
    store = open_store(Store(url=f"file://{tmp_path}/store"))
    key, _ = publish_checkpoint(store, {TOKENIZER_FILE: tmp_path / TOKENIZER_FILE}, CheckpointMeta("demo", 0))
    records: list[Record] = []
    for record in RECORDS:
        if isinstance(record, Invocation) and record.trial_id == "demo/00000001/2" and record.turn == 0:
            given = np.array([BEGIN, *tokenizer.encode("1 def f(x):\n2   return \x1b[31mhigh"), ACT], dtype=np.int32)
            said = np.array([*tokenizer.encode("edit 2: return low"), END], dtype=np.int32)
            record = replace(
                record, appended_ids=given, sampled_ids=said, logprobs=np.full(len(said), -0.5, np.float32),
                support_sizes=np.full(len(said), 300, np.int32), tokenizer_digest=tokenizer.digest,
            )  # fmt: skip
        records.append(record)
    text = text_of(records, "demo/00000001/2", store=store, base_manifest=key)
    assert "│ <|begin|>1 def f(x):" in text
    assert "│ edit 2: return low<|end|>" in text
    assert "\x1b" not in text
    assert "note:" not in text
    without = text_of(records, "demo/00000001/2", store=store, base_manifest="runs/demo/checkpoints/00000009.json")
    assert "tokenizer cannot be used (MissingObject" in without
    assert "ids [" in without
    other = text_of(RECORDS, "demo/00000001/3", store=store, base_manifest=key)
    assert "another tokenizer" in other


@pytest.mark.parametrize(
    ("trial_id", "said"),
    [
        ("demo/1/2", "run/NNNNNNNN/M"),
        ("", "run/NNNNNNNN/M"),
        ("demo/00000001/9", "demo/00000001/0"),
        ("demo/00009999/0", "has the groups demo/00000000 to"),
        ("dema/00000001/0", "the runs here are: demo"),
    ],
)
def test_a_wrong_id_is_answered_with_near_ones(trial_id: str, said: str) -> None:
    """A typing mistake costs one look, not a search."""
    with pytest.raises(UserError) as e:
        show_trial(RECORDS, trial_id, out=io.StringIO())
    assert said in str(e.value)


def test_from_a_broker_it_reads_the_same(stack: str, run_records: list[Record]) -> None:
    """The command's own path: every topic read and filtered by key gives what the records give."""
    request = next(r for r in run_records if isinstance(r, RolloutRequested) and r.member == 2)
    assert text_of(stack, request.trial_id) == text_of(run_records, request.trial_id)
    with pytest.raises(UserError) as e:
        show_trial(stack, f"{request.run_id}/99999999/0")
    assert f"has the groups {request.run_id}/00000000" in str(e.value)
