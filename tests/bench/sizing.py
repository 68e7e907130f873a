"""What one trial costs on disk, by topic, from a real run: `python -m tests.bench.sizing RUN_DIR`.

Bytes are those of the log segments, as the producers compressed them: a Kafka broker keeps the same batches. Records
are counted by reading the topics. For retention: bytes a trial x trials a day x days x copies.
"""

import sys
from collections import Counter
from pathlib import Path

from infra.local.rundir import RunDir
from infra.local.stack import readable
from schemas.rollout import Invocation, RolloutRequested
from schemas.topics import ALL
from services.runtime.tap import read_all


def on_disk(broker: Path) -> dict[str, int]:
    """Bytes of the segments, by topic; the embedded broker's folders are called topic@id."""
    return {
        folder.name.partition("@")[0]: sum(segment.stat().st_size for segment in folder.rglob("*.log"))
        for folder in (broker / "topics").iterdir()
    }


def main() -> int:
    run = RunDir(Path(sys.argv[1]))
    records: Counter[str] = Counter()
    trials, sampled, given = set(), 0, 0
    sizes = on_disk(run.broker)
    with readable(run) as cluster:
        for topic in ALL:
            for message in read_all(cluster, topic):
                records[topic.name] += 1
                record = message.record
                if isinstance(record, RolloutRequested):
                    trials.add(record.trial_id)
                elif isinstance(record, Invocation):
                    sampled += len(record.sampled_ids)
                    given += len(record.appended_ids)
    count = len(trials)
    print(f"{count} trials, {records['rollout.invocation.v1'] / count:.1f} calls, {sampled / count:.0f} sampled and "
          f"{given / count:.0f} appended tokens a trial\n")  # fmt: skip
    print("| topic | records a trial | bytes a record | bytes a trial |\n|---|---|---|---|")
    for topic in sorted(ALL, key=lambda t: -sizes[t.name]):
        if size := sizes[topic.name]:
            print(f"| {topic.name} | {records[topic.name] / count:.2f} | {size / records[topic.name]:,.0f} "
                  f"| {size / count:,.0f} |")  # fmt: skip
    print(f"| all | {records.total() / count:.1f} | | {sum(sizes.values()) / count:,.0f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
