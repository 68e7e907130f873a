"""Programs over graphs that are dictionaries of edges, with contract, right and wrong repair."""

import math
from dataclasses import dataclass
from random import Random
from typing import Any

from services.tasks.fixture import ObjectClass
from services.tasks.quixbugs.problem import Problem


@dataclass(frozen=True)
class GraphProgram:
    """A contract with a program that keeps it and one that does not."""

    problem: Problem
    correct: str
    buggy: str
    objects: tuple[ObjectClass, ...] = ()


def shortest_path_lengths(n: int, length_by_edge: dict[tuple[int, int], int]) -> dict[tuple[int, int], float]:
    """Length of a shortest path by pair of nodes in range(n) (relaxing from every node)."""
    found: dict[tuple[int, int], float] = {}
    for start in range(n):
        away = [0.0 if node == start else math.inf for node in range(n)]
        for _ in range(n):
            for (i, j), length in length_by_edge.items():
                away[j] = min(away[j], away[i] + length)
        found |= {(start, node): away[node] for node in range(n)}
    return found


def numbered_edges(rng: Random) -> tuple[Any, ...]:
    """Edges with some negative lengths but no negative cycle: every length is raised by what its ends differ in."""
    n = rng.randint(1, 6)
    height = [rng.randint(0, 6) for _ in range(n)]
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j and rng.random() < 0.35]
    return n, {(i, j): rng.randint(0, 9) + height[j] - height[i] for i, j in pairs}


ALL_PATHS = GraphProgram(
    Problem(shortest_path_lengths, numbered_edges, "number"),
    """
def shortest_path_lengths(n, length_by_edge):
    best = {(i, j): length_by_edge.get((i, j), float("inf")) if i != j else 0 for i in range(n) for j in range(n)}
    for k in range(n):
        for i in range(n):
            for j in range(n):
                best[i, j] = min(best[i, j], best[i, k] + best[k, j])
    return best
""",
    """
def shortest_path_lengths(n, length_by_edge):
    best = {(i, j): length_by_edge.get((i, j), float("inf")) if i != j else 0 for i in range(n) for j in range(n)}
    for i in range(n):
        for j in range(n):
            for k in range(n):
                best[i, j] = min(best[i, j], best[i, k] + best[j, k])
    return best
""",
)


def shortest_paths(source: str, weight_by_edge: dict[tuple[str, str], int]) -> dict[str, float]:
    """Length of a shortest path from the source by node of an edge (over paths of ever more edges)."""
    nodes = {node for edge in weight_by_edge for node in edge}
    away = {node: 0.0 if node == source else math.inf for node in nodes}
    for _ in nodes:
        longer = {
            v: min([away[u] + w for (u, to), w in weight_by_edge.items() if to == v], default=math.inf) for v in nodes
        }
        away = {node: min(away[node], longer[node]) for node in nodes}
    return away


def named_edges(rng: Random) -> tuple[Any, ...]:
    n, lengths = numbered_edges(rng)
    names = rng.sample("ABCDEFGH", n + 1)
    edges = {(names[i], names[j]): length for (i, j), length in lengths.items()}
    return names[0], {(names[0], names[n]): rng.randint(1, 9), **edges}


SINGLE_SOURCE = GraphProgram(
    Problem(shortest_paths, named_edges, "number"),
    """
def shortest_paths(source, weight_by_edge):
    away = {node: float("inf") for edge in weight_by_edge for node in edge}
    away[source] = 0
    for _ in range(len(away) - 1):
        for (u, v), weight in weight_by_edge.items():
            if away[u] + weight < away[v]:
                away[v] = away[u] + weight
    return away
""",
    """
def shortest_paths(source, weight_by_edge):
    away = {node: float("inf") for edge in weight_by_edge for node in edge}
    away[source] = 0
    for _ in range(len(away) - 1):
        for (u, v), weight in weight_by_edge.items():
            weight_by_edge[u, v] = min(away[u] + weight, away[v])
    return away
""",
)


def minimum_spanning_tree(weight_by_edge: dict[tuple[int, int], int]) -> set[tuple[int, int]]:
    """Edges of a lightest forest that joins what can be joined (growing each tree by its lightest way out)."""
    chosen: set[tuple[int, int]] = set()
    left = {node for edge in weight_by_edge for node in edge}
    while left:
        tree = {left.pop()}
        while ways := [edge for edge in weight_by_edge if (edge[0] in tree) != (edge[1] in tree)]:
            edge = min(ways, key=weight_by_edge.__getitem__)
            chosen.add(edge)
            tree |= set(edge)
        left -= tree
    return chosen


def a_lightest_forest(args: tuple[Any, ...], value: Any) -> bool:
    (weights,) = args
    best = minimum_spanning_tree(weights)
    if type(value) is not set or len(value) != len(best) or not value <= weights.keys():
        return False
    # As many edges as the reference's: without a cycle among them exactly if they join as much.
    joined = minimum_spanning_tree(dict.fromkeys(value, 1))
    return len(joined) == len(value) and sum(map(weights.get, value)) == sum(map(weights.get, best))


def weighed_edges(rng: Random) -> tuple[Any, ...]:
    n = rng.choice((2, 3, 4, 5, 7))
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n) if rng.random() < 0.7]
    rng.shuffle(pairs)
    return ({pair[:: rng.choice((1, -1))]: rng.randint(1, rng.choice((3, 30))) for pair in pairs},)


SPANNING = GraphProgram(
    Problem(minimum_spanning_tree, weighed_edges, "predicate:a_lightest_forest", predicates=(a_lightest_forest,)),
    """
def minimum_spanning_tree(weight_by_edge):
    tree_of = {node: node for edge in weight_by_edge for node in edge}
    chosen = set()
    for u, v in sorted(weight_by_edge, key=weight_by_edge.get):
        old, new = tree_of[u], tree_of[v]
        if old != new:
            chosen.add((u, v))
            tree_of = {node: new if tree == old else tree for node, tree in tree_of.items()}
    return chosen
""",
    """
def minimum_spanning_tree(weight_by_edge):
    tree_of = {node: {node} for edge in weight_by_edge for node in edge}
    chosen = set()
    for u, v in sorted(weight_by_edge, key=weight_by_edge.get):
        if tree_of[u] != tree_of[v]:
            chosen.add((u, v))
            tree_of[u].update(tree_of[v])
            for node in tree_of[v]:
                tree_of[node].update(tree_of[u])
    return chosen
""",
)
