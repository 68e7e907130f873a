"""TLS to a real Apache Kafka: trusted authorities pass, others end in one message; certificates are logins."""

import io
import json

import pytest

from schemas import topics
from services.runtime.cluster import check_trust
from services.runtime.context import ServiceSpec
from services.runtime.errors import UserError
from services.runtime.lifecycle import EXIT_USER
from services.runtime.logs import Log
from services.runtime.loop import Service
from services.runtime.process import ServiceProcess
from services.runtime.settings import Kafka, load
from services.runtime.tap import Tap
from services.runtime.topics_admin import ensure_topics
from tests.services.runtime.bus import EchoCore

pytestmark = pytest.mark.timeout(120)


def start(kafka):
    """Exit code and log of a service that is refused."""
    out = io.StringIO()
    spec = ServiceSpec("sandbox", inputs=(topics.SANDBOX_COMMAND,))
    settings = load(run_id="run", kafka=kafka)
    process = ServiceProcess("sandbox", settings, log=Log("sandbox", "run", out))
    service = Service(spec, lambda context: EchoCore(), settings, process)
    return service.run(), [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_certificate_is_a_login(secured):
    """The listener asks for one; the one of rs-admin, whom the cluster lets do everything, makes topics and reads."""
    kafka = secured.kafka(
        bootstrap=secured.cluster.tls, mechanism="",
        cert_file=str(secured.folder / "admin.crt"), key_file=str(secured.folder / "admin.key"),
    )  # fmt: skip
    settings = load(run_id="run", kafka=kafka)
    ensure_topics(settings)
    with Tap(settings.kafka, [topics.POLICY_GATE]) as tap:
        list(tap.to_end())


def test_an_authority_that_did_not_sign_is_refused_in_one_message(secured):
    code, log = start(secured.kafka(ca_file=str(secured.folder / "stranger.pem")))
    assert code == EXIT_USER
    (line,) = [line for line in log if line["level"] == "error"]
    assert "the broker's certificate is not trusted" in line["message"]
    assert "set kafka.ca_file" in line["message"]


def test_without_a_certificate_where_one_is_asked_for(secured):
    code, log = start(secured.kafka(bootstrap=secured.cluster.tls, mechanism=""))
    assert code == EXIT_USER
    assert "set kafka.cert_file" in log[-1]["message"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"ca_file": "server.key"}, "TLS files cannot be used"),
        ({"ca_file": "", "check_hostname": False}, "not trusted"),
    ],
)
def test_other_mistakes_are_named(secured, changes, says):
    if changes.get("ca_file"):
        changes = {"ca_file": str(secured.folder / changes["ca_file"])}
    with pytest.raises(UserError, match=says):
        check_trust(Kafka(**secured.kafka(**changes)), "sampler")


def test_a_cluster_that_is_down_is_no_mistake(secured):
    check_trust(Kafka(**secured.kafka(bootstrap="127.0.0.1:1")), "sampler")
