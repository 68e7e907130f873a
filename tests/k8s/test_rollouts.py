"""Each service is given another image alone, and pods are taken away at random, while the run goes on."""

import os
import random
import time

import pytest

from tests.k8s.progress import say
from tests.k8s.run import SERVICES

DELETIONS = 10
SEED = "ROLLSTREAM_TEST_K8S_SEED"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("service", SERVICES)
def test_a_service_is_rolled_alone(run, new_images, service):
    if service not in run.workloads:
        pytest.skip(f"{service} is not deployed")
    before = run.pod(service)
    took, lag = run.roll(service, new_images[service])
    after = run.pod(service)
    assert (after.image, after.created > before.created) == (new_images[service], True)
    run.table.put(service, "roll", f"{took:.1f} s")
    if lag is not None:
        run.table.put(service, "recovered after", f"{lag.after_s:.1f} s")
        if lag.before or lag.peak:
            run.table.put(service, "lag before", str(lag.before))
            run.table.put(service, "lag peak", str(lag.peak))
    say(f"  {service}: rolled in {took:.1f} s, {lag}")


@pytest.mark.timeout(300)
def test_pods_that_are_taken_away_at_random_come_back_and_the_run_goes_on(run):
    seed = int(os.environ.get(SEED) or random.SystemRandom().randrange(1_000_000))
    run.table.note(f"deletions with {SEED}={seed}")
    rng = random.Random(seed)
    deck = [name for name in SERVICES if name in run.workloads]
    rng.shuffle(deck)
    victims = (deck + rng.choices(deck, k=DELETIONS))[:DELETIONS]
    for service in victims:
        pod, force = run.pod(service), rng.random() < 0.5
        say(f"  deleting {pod.name} {'by force' if force else 'gracefully'}")
        run.attempt(lambda pod=pod, force=force: run.delete(pod, force))
        time.sleep(rng.uniform(0.5, 3.0))
    run.settled()
    run.progress(2)
