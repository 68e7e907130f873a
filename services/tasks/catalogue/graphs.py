"""Graphs: lists of neighbours, edges and successors."""

from random import Random
from typing import Any

from services.tasks.catalogue import draws
from services.tasks.catalogue.problem import define


def _graph(rng: Random) -> tuple[Any, ...]:
    return (draws.graph(rng),)


def _graph_and_node(rng: Random) -> tuple[Any, ...]:
    g = draws.graph(rng)
    return g, rng.randrange(len(g))


def _edges(rng: Random) -> tuple[Any, ...]:
    n = rng.randint(1, 6)
    return n, [(rng.randrange(n), rng.randrange(n)) for _ in range(rng.randint(0, 4))]


def _successors(rng: Random) -> tuple[Any, ...]:
    n = rng.randint(1, 6)
    return [rng.randrange(n) for _ in range(n)], rng.randrange(n)


PROBLEMS = (
    define(
        "graphs",
        """
def reach(g, x):
    out = [x]
    for x in out:
        for y in g[x]:
            if y not in out:
                out.append(y)
    return out
""",
        _graph_and_node,
    ),
    define(
        "graphs",
        """
def components(n, es):
    t = list(range(n))
    for a, b in es:
        t = [t[a] if x == t[b] else x for x in t]
    return len(set(t))
""",
        _edges,
    ),
    define(
        "graphs",
        """
def in_degree(g):
    t = [0] * len(g)
    for xs in g:
        for x in xs:
            t[x] += 1
    return t
""",
        _graph,
    ),
    define(
        "graphs",
        """
def cycle_length(xs, x):
    out = []
    while x not in out:
        out.append(x)
        x = xs[x]
    return len(out) - out.index(x)
""",
        _successors,
    ),
)
