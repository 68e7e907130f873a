"""Protects: a prefix is always the previous prefix + sampled ids + appended ids, so nothing is ever re-tokenised."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.agent.context import ContextOverflow, TrialContext, prefix_digest
from services.agent.grammar import Edit, Malformed, Submit
from services.agent.harness import Harness
from services.agent.tokenizer import ACT, BEGIN, CONTROL_TOKENS, END, OBS, Tokenizer
from tests.services.agent.conftest import SOURCE, SmallTask


def test_the_prompt_is_the_numbered_source_and_the_failure(harness: Harness, task: SmallTask) -> None:
    ids = harness.prompt_ids(task)
    assert (ids[0], ids[-1]) == (BEGIN, ACT)
    text = harness.tokenizer.decode(ids)
    assert text.startswith("1 def total(xs):\n2     out = 1\n")
    assert text.endswith("\nFAIL [] want 0 got 1")


def test_prefixes_only_grow_and_replay_gives_the_same(harness: Harness, task: SmallTask) -> None:
    context = TrialContext(harness, task)
    sampled = harness.action_ids("edit 2: out = 0")
    before = context.prefix
    action = context.after_invocation(sampled)
    assert action == Edit(2, "out = 0")
    appended = context.observe("ok")
    assert appended.compaction is None
    assert (appended.ids[0], appended.ids[-1]) == (OBS, ACT)
    assert np.array_equal(context.prefix, np.concatenate([before, sampled, appended.ids]))
    again = TrialContext(harness, task)
    again.after_invocation(sampled)
    again.observe("ok")
    assert again.prefix_digest == context.prefix_digest == prefix_digest(context.prefix)
    assert isinstance(context.after_invocation(harness.action_ids("submit")), Submit)


def test_edits_copy_the_indentation_unless_they_bring_their_own(harness: Harness, task: SmallTask) -> None:
    context = TrialContext(harness, task)
    command = context.command(Edit(4, "out -= x"))
    assert command.tool == "edit"
    assert json.loads(command.arguments) == {"line": 4, "text": "        out -= x", "base": True, "path": "solution.py"}
    assert json.loads(context.command(Edit(4, "  y")).arguments)["text"] == "  y"


def test_a_call_that_a_limit_cut_is_closed_outside_of_what_was_sampled(harness: Harness, task: SmallTask) -> None:
    context = TrialContext(harness, task)
    action = context.after_invocation(harness.tokenizer.encode("edit 2: out"))
    assert isinstance(action, Malformed)
    assert "cut after" in action.message
    appended = context.observe("BAD " + action.message)
    assert list(appended.ids[:2]) == [END, OBS]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("edit 9: x", "no line 9; the last is 5"),
        ("replace a => b", "replace is not offered; tools: edit test read submit"),
    ],
)
def test_actions_that_this_task_cannot_take(harness: Harness, task: SmallTask, text: str, message: str) -> None:
    assert TrialContext(harness, task).after_invocation(harness.action_ids(text)) == Malformed(message)


def test_a_control_token_inside_an_action_is_malformed(harness: Harness, task: SmallTask) -> None:
    ids = np.asarray([ACT, *harness.action_ids("submit")], np.int32)
    assert TrialContext(harness, task).after_invocation(ids) == Malformed("control token in action")


def test_long_observations_are_cut_with_a_mark(harness: Harness, task: SmallTask) -> None:
    context = TrialContext(harness, task)
    context.after_invocation(harness.action_ids("test"))
    appended = context.observe("FAIL " + "7" * 500)
    assert len(appended.ids) <= harness.limits.observation_tokens + 2
    assert harness.tokenizer.decode(appended.ids).endswith("..cut")


def test_compaction_drops_the_oldest_exchanges_and_says_so(harness: Harness, task: SmallTask) -> None:
    context = TrialContext(harness, task)
    reasons = []
    for turn in range(12):
        assert len(context.prefix) + context.room <= harness.limits.context_tokens
        context.after_invocation(harness.action_ids(f"edit 2: out = {turn}"))
        appended = context.observe("FAIL [1,2,3] want 6 got 7")
        if appended.compaction:
            reasons.append(appended.compaction)
            assert np.array_equal(appended.ids, context.prefix)
            assert np.array_equal(context.prefix[: len(harness.prompt_ids(task))], harness.prompt_ids(task))
    assert reasons
    assert "exceed 200" in reasons[0]


def test_a_prompt_that_leaves_no_room_overflows(harness: Harness) -> None:
    with pytest.raises(ContextOverflow, match="leaves no room"):
        TrialContext(harness, SmallTask(base_tree={"solution.py": SOURCE * 20}))


@given(st.text(max_size=60))
def test_any_text_has_ids_without_control_tokens_and_comes_back(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text + "<|end|>")
    assert not len(ids) or int(ids.min()) >= len(CONTROL_TOKENS)
    assert tokenizer.decode(ids) == text + "<|end|>"


def test_the_harness_folder_round_trips_and_refuses_another_version(harness: Harness, tmp_path: Path) -> None:
    harness.save(tmp_path)
    loaded = Harness.load(tmp_path)
    assert loaded.template_digest == harness.template_digest
    assert loaded.tokenizer.digest == harness.tokenizer.digest
    document = json.loads((tmp_path / "harness.json").read_text())
    (tmp_path / "harness.json").write_text(json.dumps({**document, "grammar": "tools/9"}))
    with pytest.raises(ValueError, match="this code speaks"):
        Harness.load(tmp_path)
