"""The account of the verdicts: every final verdict once, findings per version, canaries, shares, alarms."""

import json

from schemas.verification import VerificationAlarm, VerificationCanary
from services.monitor import verdicts
from services.runtime.screen import to_json
from tests.services.closure.records import verdict


def canary(number: int, kind: str, word: str) -> VerificationCanary:
    return VerificationCanary(
        "run", f"c{number}", kind, "t", "c", "v", "d", None, 3 if kind == "audit" else None,
        "fail" if kind == "known_bad" else "pass", word, "ok", 3, None, 1, 2,
    )  # fmt: skip


def records():
    return [
        verdict(0, 0, "pending", policy_version=3),
        verdict(0, 0, "pass", policy_version=3, evidence="E4", findings=("answer_table",)),
        verdict(0, 0, "pass", policy_version=3, evidence="E4", findings=("answer_table",)),  # delivered twice
        verdict(0, 1, "fail", policy_version=3, cause="wrong_value", findings=()),
        verdict(0, 2, "unknown", policy_version=3, cause="no_start"),
        verdict(1, 0, "fail", policy_version=4, cause="oom", findings=("test_probe", "answer_table")),
        *(canary(n, "known_bad", "fail") for n in range(9)),
        canary(9, "known_bad", "pass"),
        canary(10, "reference", "pass"),
        canary(11, "audit", "fail"),
    ]


ALARM = VerificationAlarm("run", "a", "soundness", "stop", "t", "c", None, 1, 10, None, "a known-bad passed", 5)


def test_the_account_counts_each_final_verdict_once():
    found = verdicts.account(records())
    old, new = found.versions
    assert dict(old.verdicts) == {"pass": 1, "fail": 1, "unknown": 1}
    assert dict(old.evidence) == {"E4": 1}
    assert dict(old.findings) == {"answer_table": 1}
    assert old.passes_with_findings == 1
    assert dict(new.findings) == {"test_probe": 1, "answer_table": 1}
    assert dict(new.causes) == {"oom": 1}
    assert found.canaries["known_bad", "pass"] == 1
    assert not found.stopped
    whole = found.estimates[-1]
    assert (whole.known_bad.hits, whole.known_bad.count) == (1, 10)
    assert (whole.audits.hits, whole.audits.count) == (1, 1)


def test_a_stop_is_seen_and_every_form_can_be_printed(capsys):
    found = verdicts.account([*records(), ALARM, ALARM])
    assert found.stopped
    assert len(found.alarms) == 1
    verdicts.show(found)
    said = capsys.readouterr().out
    assert "ALARM (stop) soundness: a known-bad passed" in said
    assert "10 known-bad canaries, of which 1 passed" in " ".join(said.split())
    document = json.loads(to_json(verdicts.as_json(found)))
    assert document["versions"][0]["findings"] == {"answer_table": 1}
    assert document["false_accepts"]["known_bad"] == {"passed": 1, "judged": 10}
    assert document["alarms"][0]["severity"] == "stop"


def test_nothing_judged_yet_is_no_error(capsys):
    verdicts.show(verdicts.account([]))
    assert "alarms: none" in capsys.readouterr().out


def test_weaker_attribution_is_said_and_full_is_not(capsys):
    def judged(*evidence):
        return [verdict(0, n, "pass", policy_version=3, attribution_evidence=one) for n, one in enumerate(evidence)]

    full = verdicts.account(judged("cgroup", "cgroup", None))
    assert verdicts.attribution_note(full) == ""
    weaker = verdicts.account(judged("cgroup", "sampled", "rlimit", "sampled"))
    assert verdicts.attribution_note(weaker).startswith(
        "attribution: 3 of 4 judged without kernel counters of their sandbox (sampled 2, rlimit 1)"
    )
    verdicts.show(weaker)
    assert "3 of 4 judged without kernel counters" in capsys.readouterr().out
    document = json.loads(to_json(verdicts.as_json(weaker)))
    assert document["versions"][0]["attribution_evidence"] == {"cgroup": 1, "sampled": 2, "rlimit": 1}


def test_a_finding_is_a_word_whatever_it_says(capsys, monkeypatch):
    """A word that looks like rich's markup crashed the account, or coloured it."""
    evil = ("[bold]", "[/x]", "\x1b[31mred", "a\nALARM (stop)")
    monkeypatch.setenv("COLUMNS", "300")
    verdicts.show(verdicts.account([verdict(0, 0, "pass", policy_version=3, evidence="E4", findings=evil)]))
    said = capsys.readouterr().out
    assert "[bold] 1, [/x] 1, \\x1b[31mred 1, a\\nALARM (stop) 1" in said
    assert "\x1b" not in said
