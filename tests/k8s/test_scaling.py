"""More and fewer pods while the run goes on: by hand, and by KEDA on a real backlog."""

import pytest

ELASTIC = ("sampler", "sandbox", "verifier")


@pytest.mark.timeout(300)
def test_scaled_up_and_down_by_hand(run):
    for replicas in (3, 1):
        for service in ELASTIC:
            run.scale(service, replicas)
        run.progress(1)
    run.settled()
