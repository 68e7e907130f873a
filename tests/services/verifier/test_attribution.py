"""Protects the line between candidate and infrastructure: the whole table, as a pure function over recorded facts."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.runtime.jail.limits import MIB, Usage
from services.verifier.attribution import PRESSURE_GATE, Boots, Facts, attribute

GOOD = Facts(wanted=5, answered=5, wall_s=0.02, memory_limit=256 * MIB, pressure=0.2)
LATE = replace(GOOD, ending="deadline", answered=2, wall_s=10.0)


@pytest.mark.parametrize(("facts", "expected"), [
    (GOOD, ("pass", "ok")),
    (replace(GOOD, fault="no_start", booted=False), ("infra", "no_start")),
    (replace(GOOD, booted=False), ("infra", "no_boot")),
    (replace(GOOD, fault="no_boot", booted=False, usage=Usage(oom_kills=1)), ("infra", "no_boot")),
    (replace(GOOD, ready=False, answered=0, import_error="SyntaxError"), ("fail", "syntax_error")),
    (replace(GOOD, ready=False, answered=0, import_error="NameError"), ("fail", "import_error")),
    (replace(GOOD, ready=False, answered=0, ending="eof"), ("fail", "no_ready")),
    (replace(GOOD, answered=3, ending="eof"), ("fail", "crash")),
    # The host's killer was about, but nothing of this jail was killed, or nothing says so.
    (replace(GOOD, answered=3, ending="eof", host_oom=True), ("fail", "crash")),
    (replace(GOOD, answered=3, ending="eof", host_oom=True, usage=Usage(oom_kills=0)), ("fail", "crash")),
    (replace(GOOD, answered=3, ending="eof", cpu_limit=3, usage=Usage(cpu_s=2.99)), ("fail", "cpu_limit")),
    (replace(GOOD, answered=3), ("fail", "crash")),
    (replace(GOOD, usage=Usage(oom_kills=1, memory_bytes=256 * MIB)), ("fail", "oom")),
    (replace(GOOD, usage=Usage(oom_kills=1)), ("fail", "oom")),
    (replace(GOOD, usage=Usage(oom_kills=1, memory_bytes=255 * MIB), host_oom=True), ("fail", "oom")),
    (replace(GOOD, usage=Usage(oom_kills=1, memory_bytes=20 * MIB), host_oom=True), ("infra", "host_oom")),
    (replace(GOOD, usage=Usage(pids_denied=3)), ("fail", "processes")),
    (replace(GOOD, ending="log_flood"), ("fail", "output_flood")),
    (replace(GOOD, ending="reply_flood"), ("fail", "output_flood")),
    (replace(GOOD, ending="protocol"), ("fail", "protocol")),
    (replace(GOOD, ending="lingering"), ("fail", "lingering")),
    (replace(GOOD, ending="limit", answered=1), ("fail", "cpu_limit")),
    (replace(GOOD, ending="stopped", answered=1, rejection="wrong_value"), ("fail", "wrong_value")),
    (replace(GOOD, ending="stopped", answered=1, rejection="unencodable"), ("fail", "unencodable")),
    # Deadlines: spinning, asleep, starved, and what cannot be measured.
    (replace(LATE, usage=Usage(cpu_s=9.5)), ("fail", "timeout")),
    (replace(LATE, usage=Usage(cpu_s=5.0, host_wait_s=4.0), pressure=0.95), ("fail", "timeout")),
    (replace(LATE, usage=Usage(cpu_s=0.01, host_wait_s=0.0)), ("fail", "timeout")),
    (replace(LATE, usage=Usage(cpu_s=0.01, host_wait_s=0.0), pressure=0.95), ("fail", "timeout")),
    (replace(LATE, usage=Usage(cpu_s=1.0, host_wait_s=8.0), pressure=0.95), ("infra", "host_starved")),
    (replace(LATE, usage=Usage(cpu_s=1.0, host_wait_s=8.0), pressure=0.1), ("fail", "timeout")),
    (replace(LATE, usage=Usage(cpu_s=1.0), pressure=0.95), ("fail", "timeout")),
    (replace(LATE, usage=Usage(), pressure=None), ("fail", "timeout")),
    (replace(LATE, usage=Usage(host_wait_s=9.0), pressure=0.95), ("fail", "timeout")),
    (replace(LATE, usage=Usage(cpu_s=1.0, host_wait_s=9.0), pressure=None), ("fail", "timeout")),
    # Where waiting is not measured, a jail that was late to boot stands for it; where it is, it does not.
    (replace(LATE, usage=Usage(cpu_s=1.0), pressure=0.95, boot_s=0.4, usual_boot_s=0.1), ("infra", "host_starved")),
    (replace(LATE, usage=Usage(cpu_s=1.0), pressure=0.95, boot_s=0.29, usual_boot_s=0.1), ("fail", "timeout")),
    (replace(LATE, usage=Usage(cpu_s=1.0), pressure=0.95, boot_s=9.0), ("fail", "timeout")),
    (replace(LATE, usage=Usage(cpu_s=1.0), pressure=0.1, boot_s=0.4, usual_boot_s=0.1), ("fail", "timeout")),
    (replace(LATE, usage=Usage(cpu_s=1.0, host_wait_s=0.0), pressure=0.95, boot_s=0.4, usual_boot_s=0.1),
     ("fail", "timeout")),
    # Exactly at the bounds.
    (replace(LATE, usage=Usage(cpu_s=4.99, host_wait_s=2.5), pressure=PRESSURE_GATE), ("infra", "host_starved")),
    (replace(LATE, usage=Usage(cpu_s=5.0, host_wait_s=2.5), pressure=PRESSURE_GATE), ("fail", "timeout")),
    (replace(LATE, usage=Usage(cpu_s=4.99, host_wait_s=2.49), pressure=PRESSURE_GATE), ("fail", "timeout")),
    (replace(LATE, usage=Usage(cpu_s=4.99, host_wait_s=2.5), pressure=0.59), ("fail", "timeout")),
    (replace(GOOD, usage=Usage(oom_kills=1, memory_bytes=int(0.9 * 256 * MIB) + 1), host_oom=True), ("fail", "oom")),
    (replace(GOOD, usage=Usage(oom_kills=1, memory_bytes=int(0.9 * 256 * MIB)), host_oom=True), ("infra", "host_oom")),
    (replace(GOOD, usage=Usage(oom_kills=1, memory_bytes=0), host_oom=False), ("fail", "oom")),
    # The jail's owner died and took the jail with it; what was decided before stands.
    (replace(GOOD, answered=3, ending="eof", usage=Usage(lost=True)), ("infra", "jail_lost")),
    (replace(GOOD, ready=False, answered=0, ending="eof", usage=Usage(lost=True)), ("infra", "jail_lost")),
    (replace(GOOD, usage=Usage(lost=True)), ("pass", "ok")),
    (replace(GOOD, ending="stopped", rejection="wrong_value", usage=Usage(lost=True)), ("fail", "wrong_value")),
    (replace(GOOD, ending="protocol", usage=Usage(lost=True)), ("fail", "protocol")),
    (replace(GOOD, ending="eof", answered=3, usage=Usage(lost=True, oom_kills=1)), ("fail", "oom")),
    # Without a control group: the watch's own kills are evidence, the memory killer's around the jail are not.
    (replace(GOOD, ending="eof", usage=Usage(oom_kills=1, memory_bytes=300 * MIB, outer_kills=0)), ("fail", "oom")),
    (replace(GOOD, ending="eof", usage=Usage(oom_kills=1, memory_bytes=300 * MIB, outer_kills=2)), ("fail", "oom")),
    (replace(GOOD, ending="eof", usage=Usage(oom_kills=0, pids_denied=2, outer_kills=1)), ("fail", "processes")),
    (replace(GOOD, answered=3, ending="eof", usage=Usage(oom_kills=0, outer_kills=1)), ("infra", "memory_killer")),
    (replace(GOOD, ready=False, answered=0, ending="eof", usage=Usage(outer_kills=1)), ("infra", "memory_killer")),
    # A child that was killed makes a wrong answer, a wait for it a deadline: neither is held against the candidate.
    (replace(GOOD, ending="stopped", rejection="wrong_value", usage=Usage(outer_kills=1)), ("infra", "memory_killer")),
    (replace(LATE, usage=Usage(cpu_s=9.0, outer_kills=1)), ("infra", "memory_killer")),
    (replace(GOOD, answered=3, ending="eof", cpu_limit=3, usage=Usage(cpu_s=2.99, outer_kills=1)),
     ("infra", "memory_killer")),
    (replace(GOOD, usage=Usage(outer_kills=1)), ("pass", "ok")),
    # The count stood still: nobody was killed for memory, whatever the end looks like.
    (replace(GOOD, answered=3, ending="eof", usage=Usage(outer_kills=0, killed=True)), ("fail", "crash")),
    (replace(GOOD, ending="stopped", rejection="wrong_exception", usage=Usage(outer_kills=0)),
     ("fail", "wrong_exception")),
    # Nothing counts: an end that looks like SIGKILL is nobody's fault, unless the CPU limit explains it.
    (replace(GOOD, answered=3, ending="eof", usage=Usage(killed=True)), ("infra", "memory_killer")),
    (replace(GOOD, answered=3, ending="eof", usage=Usage(killed=False)), ("fail", "crash")),
    (replace(GOOD, answered=3, ending="eof", cpu_limit=3, usage=Usage(cpu_s=2.9, killed=True)), ("fail", "cpu_limit")),
    (replace(GOOD, answered=3, ending="eof", cpu_limit=3, usage=Usage(cpu_s=0.2, killed=True)),
     ("infra", "memory_killer")),
    (replace(GOOD, ending="stopped", rejection="wrong_value", usage=Usage(killed=True)), ("fail", "wrong_value")),
    # No pressure to be read: a jail that was late to boot stands for it, before any code of the candidate ran.
    (replace(LATE, usage=Usage(cpu_s=1.0, host_wait_s=8.0), pressure=None, boot_s=0.4, usual_boot_s=0.1),
     ("infra", "host_starved")),
    (replace(LATE, usage=Usage(cpu_s=1.0, host_wait_s=0.1), pressure=None, boot_s=0.4, usual_boot_s=0.1),
     ("fail", "timeout")),
    (replace(LATE, usage=Usage(cpu_s=1.0), pressure=None, boot_s=0.4, usual_boot_s=0.1), ("infra", "host_starved")),
])  # fmt: skip
def test_the_table(facts: Facts, expected: tuple[str, str]) -> None:
    assert attribute(facts) == expected


ENDINGS = ("complete", "eof", "deadline", "protocol", "log_flood", "reply_flood", "stopped", "limit", "lingering")
SECONDS = st.one_of(st.none(), st.floats(0, 20))
COUNTS = st.one_of(st.none(), st.integers(0, 3))
ANY = st.builds(
    Facts,
    fault=st.sampled_from([None, None, None, "no_start"]),
    booted=st.sampled_from([True, True, True, False]),
    ready=st.booleans(),
    import_error=st.sampled_from([None, "NameError", "SyntaxError"]),
    ending=st.sampled_from(ENDINGS),
    rejection=st.sampled_from([None, "wrong_value", "unencodable"]),
    wanted=st.just(5),
    answered=st.integers(0, 5),
    wall_s=st.floats(0, 20),
    usage=st.builds(Usage, SECONDS, st.one_of(st.none(), st.integers(0, 256 * MIB)), COUNTS, COUNTS, SECONDS,
                    st.booleans(), COUNTS, st.sampled_from([None, False, True])),
    memory_limit=st.just(256 * MIB),
    cpu_limit=st.sampled_from([0.0, 3.0]),
    pressure=st.one_of(st.none(), st.floats(0, 1)),
    host_oom=st.booleans(),
    boot_s=SECONDS,
    usual_boot_s=SECONDS,
)  # fmt: skip


@settings(max_examples=500)
@given(ANY)
def test_infrastructure_is_concluded_from_nothing_but_its_five_kinds_of_evidence(facts: Facts) -> None:
    outcome, cause = attribute(facts)
    if outcome == "pass":
        assert facts.ending == "complete"
        assert facts.ready
        assert facts.rejection is facts.import_error is facts.fault is None
        assert facts.answered == facts.wanted
        assert not facts.usage.oom_kills
        assert not facts.usage.pids_denied
    if outcome == "infra":
        assert (
            facts.fault is not None
            or not facts.booted
            or (cause == "jail_lost" and facts.ending == "eof" and facts.usage.lost)
            or (
                cause == "host_oom"
                and facts.host_oom
                and facts.usage.oom_kills
                and facts.usage.memory_bytes is not None
            )
            or (cause == "host_starved" and facts.ending == "deadline" and _starved(facts))
            or (cause == "memory_killer" and _killer_was_about(facts))
        )


def _starved(facts: Facts) -> bool:
    return facts.usual_boot_s is not None if facts.pressure is None else facts.pressure >= PRESSURE_GATE


def _killer_was_about(facts: Facts) -> bool:
    usage = facts.usage
    if usage.outer_kills is not None:
        return usage.outer_kills > 0
    return bool(usage.killed) and facts.ending == "eof"


@settings(max_examples=300)
@given(ANY)
def test_what_nobody_measured_never_turns_a_fail_into_infrastructure(facts: Facts) -> None:
    blind = replace(facts, usage=Usage(lost=facts.usage.lost), pressure=None, boot_s=None, usual_boot_s=None)
    if attribute(blind)[0] == "infra":
        assert facts.fault is not None or not facts.booted or facts.usage.lost


def test_boots_tell_what_is_usual_only_once_enough_were_seen() -> None:
    boots = Boots(remembered=4, least=3)
    seen = [boots.seen(replace(GOOD, boot_s=second)).usual_boot_s for second in (0.1, 0.3, None, 0.2, 0.9, 0.9, 0.9)]
    assert seen == [None, None, None, None, pytest.approx(0.2), pytest.approx(0.25), pytest.approx(0.6)]
