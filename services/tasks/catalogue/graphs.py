"""Graphs: lists of neighbours, edges and successors."""

from random import Random
from typing import Any

from services.tasks.catalogue import draws
from services.tasks.catalogue.problem import define
from services.tasks.domain import Domain, Stratum
from services.tasks.strata import permutation


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


Neighbours = list[list[int]]


def _renamed(rng: Random, g: Neighbours, keep: int = 0) -> tuple[Neighbours, int]:
    """The same graph with its nodes numbered at random, neighbours in any order; and the new number of node `keep`."""
    names = permutation(rng, len(g))
    if len(g) > 100:  # a large number for the node that one begins at
        place = names.index(len(g) - 1)
        names[place], names[keep] = names[keep], names[place]
    out: Neighbours = [[] for _ in g]
    for node, xs in enumerate(g):
        out[names[node]] = [names[x] for x in xs]
        if len(xs) > 1:
            rng.shuffle(out[names[node]])
    return out, names[keep]


def _random(rng: Random, size: int, most: int) -> Neighbours:
    """Up to `most` distinct neighbours of each node, itself among them now and then."""
    counts = rng.choices(range(most + 1), k=size)
    return [list(dict.fromkeys(rng.choices(range(size), k=count))) for count in counts]


def _chain(size: int) -> Neighbours:
    return [[x + 1] for x in range(size - 1)] + [[]]


def _ring(size: int) -> Neighbours:
    return [[(x + 1) % size] for x in range(size)]


def _star(size: int) -> Neighbours:
    return [list(range(1, size)), *([] for _ in range(size - 1))]


def _inward(size: int) -> Neighbours:
    """Every node but node 0 has node 0 for its only neighbour."""
    return [[], *([0] for _ in range(size - 1))]


def _grid(width: int, height: int) -> Neighbours:
    """Right and down; two ways lead to most nodes."""
    at = [(x, y) for y in range(height) for x in range(width)]
    steps = [[(x + 1, y), (x, y + 1)] for x, y in at]
    return [[x + width * y for x, y in found if x < width and y < height] for found in steps]


def _tree(rng: Random, size: int) -> Neighbours:
    """Each node but node 0 below one with a lower number."""
    out: Neighbours = [[] for _ in range(size)]
    for node in range(1, size):
        out[node - 1 - int(rng.random() * min(9, node))].append(node)
    return out


def _beside(rng: Random, g: Neighbours, more: int) -> Neighbours:
    """The graph, and nodes that point into it but that nothing in it points to."""
    return g + [[node] for node in rng.choices(range(len(g)), k=more)]


_REACHED = (
    Stratum("the first node, two steps", lambda rng: ([[1], [2, 0], [], [rng.randrange(4)]], 0), 2),
    Stratum("one node", lambda rng: (rng.choice(([[]], [[0]])), 0)),
    Stratum("two nodes", lambda rng: _renamed(rng, rng.choice(([[1], []], [[1], [0]], [[], [0]])))),
    Stratum("few", lambda rng: (_random(rng, n := rng.randint(4, 9), 3), rng.randrange(n)), 3),
    Stratum("tens", lambda rng: (_random(rng, n := rng.randint(12, 40), 3), rng.randrange(n)), 3),
    Stratum("above a hundred", lambda rng: _renamed(rng, _beside(rng, _tree(rng, rng.randint(104, 120)), 20))),
    Stratum("hundreds", lambda rng: _renamed(rng, _beside(rng, _tree(rng, rng.randint(240, 260)), 40))),
    Stratum("a chain", lambda rng: _renamed(rng, _chain(rng.randint(8, 30)))),
    Stratum("a chain of hundreds", lambda rng: _renamed(rng, _chain(rng.randint(260, 280)))),
    Stratum("a chain, from its middle", lambda rng: _renamed(rng, _chain(n := rng.randint(9, 40)), n // 2)),
    Stratum("a chain in falling order", lambda rng: (n := rng.randint(20, 60), ([[], *([x] for x in range(n))], n))[1]),
    Stratum("a ring", lambda rng: _renamed(rng, _ring(rng.randint(3, 60)))),
    Stratum("a star", lambda rng: _renamed(rng, _star(rng.randint(22, 60)))),
    Stratum("a star of a hundred", lambda rng: _renamed(rng, _star(rng.randint(104, 120))), 2),
    Stratum("two ways to most", lambda rng: _renamed(rng, _grid(rng.randint(3, 9), rng.randint(3, 9))), 2),
    Stratum("a tree", lambda rng: _renamed(rng, _tree(rng, rng.randint(15, 60)))),
    Stratum("all in one round", lambda rng: _renamed(rng, [rng.sample(range(20), 20) for _ in range(20)])),
    Stratum("nothing but itself", lambda rng: (_beside(rng, [[0]], rng.randint(3, 30)), 0)),
)

_ENTERED = (
    Stratum("empty", lambda rng: ([],)),
    Stratum("one node", lambda rng: (rng.choice(([[]], [[0]])),)),
    Stratum("two nodes", lambda rng: (rng.choice(([[1], []], [[1], [0]], [[0, 1], [1]], [[], []])),)),
    Stratum("few", lambda rng: (_random(rng, rng.randint(3, 9), 3),), 3),
    Stratum("tens", lambda rng: (_random(rng, rng.randint(12, 40), 6),), 3),
    Stratum("above a hundred", lambda rng: (_random(rng, rng.randint(104, 130), 4),)),
    Stratum("hundreds", lambda rng: (_random(rng, rng.randint(260, 300), 4),)),
    Stratum("one that many enter", lambda rng: _renamed(rng, _inward(rng.randint(12, 60)))[:1]),
    Stratum("one that hundreds enter", lambda rng: _renamed(rng, _inward(rng.randint(260, 300)))[:1]),
    Stratum("one that leads to many", lambda rng: _renamed(rng, _star(rng.randint(12, 60)))[:1]),
    Stratum("one that leads to a hundred", lambda rng: _renamed(rng, _star(rng.randint(104, 130)))[:1]),
    Stratum("every node to every node", lambda rng: ([list(range(n := rng.randint(11, 24)))] * n,)),
    Stratum("a chain", lambda rng: _renamed(rng, _chain(rng.randint(10, 60)))[:1]),
    Stratum("a ring of hundreds", lambda rng: _renamed(rng, _ring(rng.randint(260, 300)))[:1]),
    Stratum("no neighbours", lambda rng: ([[] for _ in range(rng.randint(3, 40))],)),
    Stratum("loops", lambda rng: ([[x] for x in range(rng.randint(3, 40))],)),
    Stratum("only the last is entered", lambda rng: (n := rng.randint(3, 40), [[n - 1]] * n)[1:]),
)

Edges = list[tuple[int, int]]


def _joined(rng: Random, n: int, es: Edges, order: str = "any") -> tuple[Any, ...]:
    """A graph of n nodes by its edges; with "any", its nodes numbered at random, edges in any order, ends in either."""
    if order == "any":
        names = permutation(rng, n)
        es = [(names[a], names[b]) if rng.random() < 0.5 else (names[b], names[a]) for a, b in es]
        rng.shuffle(es)
    return n, es


def _path(n: int) -> Edges:
    return [(x, x + 1) for x in range(n - 1)]


def _forest(rng: Random, n: int, roots: int) -> Edges:
    return [(x - 1 - int(rng.random() * min(9, x)), x) for x in range(roots, n)]


def _thrice(rng: Random, n: int) -> Edges:
    """One path of n nodes from node 0, from node 128 and from node 256."""
    es = [(first + a, first + b) for first in (0, 128, 256) for a, b in _path(n)]
    rng.shuffle(es)
    return es


def _pairs(rng: Random, n: int, count: int, least: int = 0) -> Edges:
    return [(rng.randrange(least, n), rng.randrange(least, n)) for _ in range(count)]


_JOINED = (
    Stratum("one node", lambda rng: (1, rng.choice(([], [(0, 0)])))),
    Stratum("two nodes", lambda rng: (2, rng.choice(([], [(0, 1)], [(1, 0)], [(1, 1)], [(0, 1), (1, 0)])))),
    Stratum("no edges", lambda rng: (rng.choice((rng.randint(2, 99), 256)), [])),
    Stratum("no edges, hundreds", lambda rng: (rng.randint(257, 300), [])),
    Stratum("few", lambda rng: (n := rng.randint(3, 9), _pairs(rng, n, rng.randint(2, 9))), 3),
    Stratum("tens", lambda rng: (n := rng.randint(12, 40), _pairs(rng, n, rng.randint(9, 40))), 3),
    Stratum(
        "above a hundred", lambda rng: _joined(rng, n := rng.randint(122, 130), _forest(rng, n, rng.randint(2, 12)))
    ),
    Stratum("hundreds", lambda rng: (n := rng.randint(270, 300), _pairs(rng, n, 30, n - 40))),
    Stratum("alike modulo 128 and 256", lambda rng: (rng.randint(285, 300), _thrice(rng, rng.randint(9, 16)))),
    Stratum("a path", lambda rng: _joined(rng, n := rng.randint(8, 30), _path(n))),
    Stratum("a path of a hundred", lambda rng: _joined(rng, n := rng.randint(104, 115), _path(n))),
    Stratum("a path in order", lambda rng: (n := rng.randint(8, 60), _path(n))),
    Stratum("a path in reverse", lambda rng: (n := rng.randint(8, 60), _path(n)[::-1])),
    Stratum("a path against its direction", lambda rng: (n := rng.randint(8, 60), [(b, a) for a, b in _path(n)])),
    Stratum("a path in reverse against it", lambda rng: (n := rng.randint(8, 60), [(b, a) for a, b in _path(n)[::-1]])),
    Stratum("a triangle", lambda rng: _joined(rng, rng.randint(3, 12), [(0, 1), (1, 2), (2, 0)])),
    Stratum("a ring", lambda rng: _joined(rng, n := rng.randint(4, 40), [*_path(n), (n - 1, 0)])),
    Stratum(
        "rings", lambda rng: _joined(rng, 30, [(x, x // 6 * 6 + (x + 1) % 6) for x in range(rng.choice((12, 18, 24)))])
    ),
    Stratum("a star", lambda rng: _joined(rng, n := rng.randint(104, 110), [(0, x) for x in range(1, n)])),
    Stratum("every pair", lambda rng: _joined(rng, 13, [(a, b) for a in range(9) for b in range(a)])),
    Stratum(
        "the same edge again and again",
        lambda rng: _joined(rng, rng.randint(3, 20), [(0, 1), (1, 2)] * rng.randint(2, 9)),
    ),
    Stratum("loops", lambda rng: (n := rng.randint(3, 20), [(x, x) for x in range(n)] + [(0, n - 1)])),
    Stratum(
        "two halves, joined last",
        lambda rng: (n := 2 * rng.randint(5, 30), [e for e in _path(n) if e[1] != n // 2] + [(n // 2, 0)]),
    ),
    Stratum("a forest", lambda rng: _joined(rng, n := rng.randint(20, 60), _forest(rng, n, rng.randint(2, 15))), 2),
)


def _rho(rng: Random, tail: int, cycle: int, more: int = 0) -> tuple[Any, ...]:
    """Successors: a tail into a cycle, numbered at random, and nodes that lead into it; asked from the tail's start."""
    size = tail + cycle
    names = permutation(rng, size + more)
    if size > 60:
        place = names.index(size + more - 1)
        names[place], names[0] = names[0], names[place]
    xs = [0] * (size + more)
    for node in range(size + more):
        after = node + 1 if node + 1 < size else tail
        xs[names[node]] = names[after if node < size else int(rng.random() * size)]
    return xs, names[0]


def _at_random(rng: Random, size: int) -> tuple[Any, ...]:
    return [rng.randrange(size) for _ in range(size)], rng.randrange(size)


def _from_the_last(rng: Random, size: int) -> tuple[Any, ...]:
    """Two cycles of different lengths; the last node is on the longer one, the first ones are on the shorter."""
    short = rng.randint(22, 26)
    xs = [(x + 1) % short if x < short else x + 1 for x in range(size)]
    return [*xs[:-1], short], size - 1


_FOLLOWED = (
    Stratum("one node", lambda rng: ([0], 0)),
    Stratum("two nodes", lambda rng: (rng.choice(([0, 0], [1, 0], [1, 1], [0, 1])), rng.randint(0, 1))),
    Stratum("few", lambda rng: _at_random(rng, rng.randint(3, 9)), 2),
    Stratum("tens", lambda rng: _at_random(rng, rng.randint(12, 40)), 2),
    Stratum("a node that leads to itself", lambda rng: _rho(rng, 0, 1, rng.randint(1, 20))),
    Stratum("no tail", lambda rng: _rho(rng, 0, rng.randint(2, 12), rng.randint(0, 9)), 2),
    Stratum("no tail, tens", lambda rng: _rho(rng, 0, rng.randint(13, 60), rng.randint(0, 9))),
    Stratum("no tail, a hundred", lambda rng: _rho(rng, 0, rng.randint(104, 130))),
    Stratum("no tail, hundreds", lambda rng: _rho(rng, 0, rng.randint(260, 300))),
    Stratum("a short tail", lambda rng: _rho(rng, rng.randint(1, 4), rng.randint(2, 12)), 2),
    Stratum("a tail", lambda rng: _rho(rng, rng.randint(6, 30), rng.randint(2, 12), rng.randint(0, 9)), 2),
    Stratum("a tail of a hundred", lambda rng: _rho(rng, rng.randint(104, 130), rng.randint(2, 30))),
    Stratum("a tail of hundreds", lambda rng: _rho(rng, rng.randint(260, 290), rng.randint(2, 9))),
    Stratum("a tail to a node that leads to itself", lambda rng: _rho(rng, rng.randint(6, 40), 1)),
    Stratum("a tail as long as the cycle", lambda rng: _rho(rng, n := rng.randint(3, 40), n)),
    Stratum("a tail and a cycle of a hundred", lambda rng: _rho(rng, rng.randint(104, 115), rng.randint(104, 115))),
    Stratum("in rising order", lambda rng: ([*range(1, n := rng.randint(9, 60)), rng.randrange(n)], 0), 2),
    Stratum("from the last one", lambda rng: _from_the_last(rng, rng.randint(55, 70)), 2),
    Stratum("in falling order", lambda rng: ([rng.randint(1, 40), *range(60)], 60)),
)

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
        domain=Domain(
            "g: a directed graph of up to 300 nodes; g[i] is the list of the nodes that node i leads to, each once, "
            "in any order; x: a node. The answer is the list of the nodes that can be reached from x, x first, in "
            "breadth-first order: the neighbours of a node in the order of its list, each node once, where it is "
            "first met.",
            _REACHED,
        ),
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
        domain=Domain(
            "n: an int from 1 to 300, the nodes are 0 to n - 1; es: a list of up to 300 undirected edges, each a "
            "tuple of two nodes, which may be one, in any order and more than once. The answer is the number of "
            "connected components.",
            _JOINED,
        ),
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
        domain=Domain(
            "g: a directed graph of up to 300 nodes; g[i] is the list of the nodes that node i leads to, each once, "
            "in any order. The answer is the list of how many nodes lead to each node (itself counts).",
            _ENTERED,
        ),
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
        domain=Domain(
            "xs: a list of 1 to 300 ints, where xs[i] is the one node (0 to len(xs) - 1) that node i leads to; x: a "
            "node. The answer is the number of nodes on the cycle that one ends in from x.",
            _FOLLOWED,
        ),
    ),
)
