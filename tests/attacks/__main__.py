"""`python -m tests.attacks [bubblewrap|docker|unprivileged]`: the battery as a table, a line per row of its list.

`unprivileged` is bubblewrap behind the walls of an unprivileged pod, which root makes (`tests/services/pod_like.py`).
"""

import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from services.runtime.jail.backend import open_backend
from services.runtime.settings import Isolation
from tests.attacks import battery
from tests.attacks.test_battery import ROWS
from tests.services import docker_engine, pod_like


def main(kind: str) -> int:
    """Print the table; the number of attacks whose verdict or attribution is not as it must be."""
    if kind == "unprivileged":
        return behind_walls()
    with ExitStack() as stack:
        settings = Isolation(backend="bubblewrap")
        if kind == "docker":
            why = docker_engine.missing()
            if why:
                sys.exit(f"no docker here: {why}")
            engine = docker_engine.Engine(Path(stack.enter_context(TemporaryDirectory())) / "engine")
            stack.callback(engine.stop)
            engine.start()
            settings = Isolation(backend="docker", docker_url=engine.url)
        backend = stack.enter_context(open_backend(settings, 8))
        with ThreadPoolExecutor(4) as pool:
            outcomes = list(pool.map(lambda attack: battery.run(backend, attack), ROWS.values()))
    lines: dict[str, Counter[str]] = {}
    wrong = []
    for attack, (outcome, cause) in zip(ROWS.values(), outcomes, strict=True):
        lines.setdefault(attack.row, Counter())[outcome if outcome == "pass" else f"{outcome}: {cause}"] += 1
        if not attack.good(outcome, cause, backend.evidence):
            wrong.append(f"{attack.name}: {outcome} ({cause}), not {' or '.join(attack.causes) or 'pass'}")
    print(f"{'row':8}{'programs':>9}  outcomes on {kind}, attribution by {backend.evidence}")
    for row in sorted(lines, key=lambda name: (name[0], len(name), name)):
        print(f"{row:8}{lines[row].total():9}  {', '.join(f'{n} {what}' for what, n in lines[row].most_common())}")
    print(f"{len(ROWS)} programs, {len(wrong)} not as they must be", *wrong, sep="\n  ")
    return len(wrong)


def behind_walls() -> int:
    """The same, as user 10001 without capabilities; 0 or 1."""
    why = pod_like.missing()
    if why:
        sys.exit(f"no walls of a pod here: {why}")
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        return subprocess.run(pod_like.command(Path(folder), "-m", "tests.attacks", "bubblewrap")).returncode


if __name__ == "__main__":
    wanted = sys.argv[1] if len(sys.argv) > 1 else "bubblewrap"
    if wanted not in ("bubblewrap", "docker", "unprivileged"):
        sys.exit((__doc__ or "").strip())
    sys.exit(min(1, main(wanted)))
