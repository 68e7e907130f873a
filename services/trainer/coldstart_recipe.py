"""The cold start's constants and its digest, without torch: a cached start is found before anything heavy is loaded."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from services.runtime.settings import RunSettings
from services.tasks.leaks import without_leaks
from services.tasks.taskset import TaskSet

# Changes of the recipe that settings do not show must change this, since results are cached by digest.
RECIPE = "supervised/1"
WRONG_SHARE = 0.4
WARMUP_STEPS = 20
AVERAGING = 0.97  # of the weights, by step: the average is measured and kept, it is less noisy than the last step
BETAS = (0.9, 0.99)
CHUNK = 8  # batches that are sorted by length together; also how often the estimate is taken
MEASURED_TASKS = 128
TRIES = 3
# Sampled pass rate within a trial over the estimate from reference mass (see `estimate`), as measured.
CALIBRATION = 0.87
STATE_FILE = "supervised.pt"
REPORT_FILE = "coldstart.json"
NOT_POLICY = frozenset({STATE_FILE, REPORT_FILE})
"""Files of a cold start's folder that belong to its training, not to the policy."""


def digest(settings: RunSettings, tasks: TaskSet) -> str:
    """Content digest of everything that decides the result, wall-clock limits apart."""
    document = {
        "recipe": RECIPE,
        "model": settings.model.model_dump(exclude={"base"}),
        "base": _folder_digest(Path(settings.model.base)) if settings.model.base else None,
        "coldstart": settings.coldstart.model_dump(exclude={"max_wall_s"}),
        "seed": settings.seed,
        "tasks": without_leaks(tasks).digest,  # nothing is learnt from those, and they differ from run to run
        "constants": [WRONG_SHARE, WARMUP_STEPS, AVERAGING, BETAS, CHUNK, MEASURED_TASKS, TRIES, CALIBRATION],
    }
    return "sha256:" + hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _folder_digest(folder: Path) -> list[list[str]]:
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return [[path.name, hashlib.sha256(path.read_bytes()).hexdigest()] for path in files]
