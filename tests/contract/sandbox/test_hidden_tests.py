"""Hidden pytest files judge alike on every backend, outside of the jail and inside."""

import pytest

from services.runtime.jail.backend import Backend
from services.verifier import trial
from services.verifier.attribution import attribute
from tests.services.verifier.hidden_cases import ATTACKS, BOUNDS, RIGHT, WRONG, calc_check

EXPECTED = {
    "outside": {RIGHT: "ok", WRONG: "test_failed", ATTACKS["exit in a call"]: "crash"},
    "inside": {RIGHT: "ok", WRONG: "test_failed", ATTACKS["patch TestReport"]: "tampered"},
}


@pytest.mark.parametrize("mode", EXPECTED)
def test_hidden_tests(backend: Backend, mode: str) -> None:
    for source, cause in EXPECTED[mode].items():
        facts = trial.run(backend, {"calc.py": source}, calc_check(mode), 5, BOUNDS)
        assert attribute(facts) == ("pass" if cause == "ok" else "fail", cause), facts
