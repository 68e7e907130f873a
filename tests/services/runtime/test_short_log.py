"""A service that finds its log shorter than what it has read says which offsets are missing, and reads it all."""

from services.runtime.archive import Restorer
from tests.services.runtime.bus import IN, RUN, wait_for


def test_what_a_log_lost_at_its_end_is_named_with_its_range(bus):
    bus.send(range(12))
    with Restorer(bus.bootstrap) as restorer:
        restorer.group(f"{RUN}.sandbox", {(IN.name, n): 50 for n in range(bus.settings.kafka.partitions)})
    running = bus.start()
    wait_for(lambda: len(running.core.numbers) == 12 if running.core else False, 60, "everything to be read again")
    said = running.said("the log ends before what was read")
    assert len(said) == bus.settings.kafka.partitions
    assert all(entry["missing"].endswith("..49") and entry["do"] == "rollstream repair" for entry in said)
