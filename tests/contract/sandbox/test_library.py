"""The standard library inside is the one outside: what can be imported here can be imported there, and works."""

from __future__ import annotations

import subprocess
import sys

import pytest

from services.runtime.jail.backend import Backend, Options, Runtime
from tests.contract.sandbox.asking import ask

# `this` and `antigravity` print and open a browser; each is imported in a child, whose end shows.
IMPORTABLE = """
import importlib, os, sys
def f():
    missing = []
    for name in sorted(sys.stdlib_module_names - {"antigravity", "this", "idlelib"}):
        if os.fork() == 0:
            try:
                importlib.import_module(name)
                os._exit(0)
            finally:
                os._exit(1)
        if os.wait()[1]:
            missing.append(name)
    return " ".join(missing)
"""
USES = {
    "asyncio": """
import asyncio
async def double(n):
    await asyncio.sleep(0)
    return 2 * n
async def all_of(n): return sum(await asyncio.gather(*map(double, range(n))))
def f(n): return asyncio.run(all_of(n))
""",
    "asyncio with threads and processes": """
import asyncio, sys
async def main(n):
    there = await asyncio.to_thread(lambda: n)
    started = await asyncio.create_subprocess_exec(sys.executable, "-c", f"print({there} * 9)", stdout=-1)
    return int((await started.communicate())[0])
def f(n): return asyncio.run(main(n))
""",
    "multiprocessing": """
import multiprocessing
def work(n, end): end.send(9 * n)
def f(n):
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.Process(target=work, args=(n, theirs))
    child.start()
    got = ours.recv()
    child.join()
    return got
""",
    "sqlite3": """
import sqlite3
def f(n):
    with sqlite3.connect(":memory:") as base:
        return base.execute("select ? * 9", (n,)).fetchone()[0]
""",
    "threads": """
from concurrent.futures import ThreadPoolExecutor
import threading
def f(n):
    lock, done = threading.Lock(), []
    def work(i):
        with lock: done.append(i)
    with ThreadPoolExecutor(4) as pool: list(pool.map(work, range(10 * n)))
    return len(done) - n
""",
}


@pytest.fixture(scope="module")
def missing_outside() -> str:
    line = [str(getattr(sys, "_base_executable", sys.executable)), "-I", "-S", "-c", IMPORTABLE + "print(f())"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("runtime", ["plain", "pytest", "network"])
def test_every_module_of_the_library_can_be_imported(backend: Backend, missing_outside: str, runtime: Runtime) -> None:
    assert ask(backend, IMPORTABLE, options=Options(runtime=runtime)).value == missing_outside


@pytest.mark.parametrize("what", USES)
def test_and_used_without_a_network(backend: Backend, what: str) -> None:
    assert ask(backend, USES[what], 10).value == 90


def test_locks_between_processes_work_where_there_is_a_place_for_them(backend: Backend) -> None:
    source = """
import multiprocessing
def work(lock, end):
    with lock: end.send(1)
def f(n):
    lock = multiprocessing.Lock()
    ours, theirs = multiprocessing.Pipe()
    children = [multiprocessing.Process(target=work, args=(lock, theirs)) for _ in range(n)]
    for child in children: child.start()
    got = sum(ours.recv() for _ in children)
    for child in children: child.join()
    return got
"""
    if backend.name == "docker":
        pytest.skip("containers have no /dev/shm")
    assert ask(backend, source, 3).value == 3
