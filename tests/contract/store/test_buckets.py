"""A missing bucket on a real S3 server: told from other mistakes, and made where that is asked for."""

import uuid

import pytest

from services.runtime.store import MissingBucket, open_store


def test_a_bucket_is_made_once_and_only_when_asked(s3_server):
    name = f"b{uuid.uuid4().hex[:12]}"
    section = s3_server.settings(url=f"s3://{name}/some/prefix")
    with pytest.raises(MissingBucket, match="create-buckets"):
        open_store(section)
    assert not s3_server.client.bucket_exists(name)
    open_store(section, create=True).put("a/b", b"x")
    assert open_store(section, create=True).get("a/b") == b"x", "one that is there is taken as it is"
    assert open_store(section).get("a/b") == b"x"


def test_making_it_takes_the_right_to(s3_server, tmp_path):
    made = s3_server.least_privilege(tmp_path / "secrets")
    section = made.store.model_copy(update={"url": f"s3://b{uuid.uuid4().hex[:12]}"})
    with pytest.raises(Exception, match=r"may not do this|does not exist"):
        open_store(section, "sampler", create=True)
