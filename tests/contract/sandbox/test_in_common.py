"""Jails have nothing in common: not those of two services, not two at once, not one after another."""

from __future__ import annotations

import os

import pytest

from services.runtime.jail.backend import Backend, open_backend
from services.runtime.jail.launcher import JailHost
from services.runtime.settings import Isolation
from tests.contract.sandbox.channels import heard, places


def test_no_jail_hears_of_another_one_of_its_service(backend: Backend) -> None:
    assert heard(backend, backend) == []


def test_no_jail_hears_of_one_of_another_service(backend: Backend, isolation: Isolation) -> None:
    with open_backend(isolation, 2) as other:
        assert heard(backend, other) == []


def test_jails_share_no_inode_with_each_other_or_with_the_host(backend: Backend, isolation: Isolation) -> None:
    if isinstance(backend, JailHost) and not backend.own_roots:
        pytest.skip("without a right to mount, jails of one service share its copy")
    with open_backend(isolation, 1) as other:
        found = places(backend, backend, other)
    host = os.stat(os.__file__)
    assert len({*found, f"{host.st_dev}:{host.st_ino}"}) == 10
