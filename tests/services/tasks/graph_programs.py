"""Nine programs over graphs with contract, right and wrong repair: here those with linked nodes.

The functions are the textbook's; everything here was written for these tests.
"""

import math
from itertools import pairwise
from random import Random
from typing import Any

from services.tasks.fixture import ObjectClass
from services.tasks.objects import linked, node_class
from services.tasks.quixbugs.problem import Problem
from tests.services.tasks.graph_edges import ALL_PATHS, SINGLE_SOURCE, SPANNING, GraphProgram

CELL = ObjectClass("Node", ("value", "successor"))
VERTEX = ObjectClass("Node", ("value", "successors"))
TASK = ObjectClass("Node", ("value", "incoming_nodes", "outgoing_nodes"))
Cell, Vertex, Task = (node_class(kind.name, kind.fields) for kind in (CELL, VERTEX, TASK))


def chain(values: list[int]) -> list[Any]:
    cells: list[Any] = [Cell(value) for value in values]
    for cell, following in pairwise(cells):
        cell.successor = following
    return cells


def vertices(rng: Random, least: int = 1) -> list[Any]:
    """A directed graph, sparse, with cycles and loops; the order of nodes and values says nothing."""
    nodes: list[Any] = [Vertex(value, []) for value in rng.sample(range(50), rng.randint(least, 7))]
    for node in nodes:
        node.successors = rng.sample(nodes, min(len(nodes), rng.choice((0, 1, 1, 2))))
    return nodes


# Reachability -------------------------------------------------------------------------------------------------------


def breadth_first_search(startnode: Any, goalnode: Any) -> bool:
    """Whether the goal can be reached."""
    return any(node is goalnode for node in linked(startnode))


def depth_first_search(startnode: Any, goalnode: Any) -> bool:
    """Whether the goal can be reached."""
    return any(node is goalnode for node in linked(startnode))


def start_and_goal(rng: Random) -> tuple[Any, ...]:
    nodes = vertices(rng)
    if rng.random() < 0.2:  # a twin of a node is not that node
        twin: Any = Vertex(nodes[0].value, list(nodes[0].successors))
        nodes.append(twin)
    return rng.choice(nodes), rng.choice(nodes)


SEARCHING = GraphProgram(
    Problem(breadth_first_search, start_and_goal),
    """
def breadth_first_search(startnode, goalnode):
    layer, seen = [startnode], {id(startnode)}
    while layer:
        if any(node is goalnode for node in layer):
            return True
        found = [node for parent in layer for node in parent.successors]
        layer = []
        for node in found:
            if id(node) not in seen:
                seen.add(id(node))
                layer.append(node)
    return False
""",
    """
def breadth_first_search(startnode, goalnode):
    waiting, seen = [startnode], [startnode]
    while True:
        node = waiting.pop(0)
        if node is goalnode:
            return True
        new = [one for one in node.successors if one not in seen]
        waiting += new
        seen += new
""",
    (VERTEX,),
)
DEEP = GraphProgram(
    Problem(depth_first_search, start_and_goal),
    """
def depth_first_search(startnode, goalnode):
    seen = set()

    def reaches(node):
        if node is goalnode:
            return True
        seen.add(node)
        return any(reaches(one) for one in node.successors if one not in seen)

    return reaches(startnode)
""",
    """
def depth_first_search(startnode, goalnode):
    if startnode is goalnode:
        return True
    return any(depth_first_search(one, goalnode) for one in startnode.successors)
""",
    (VERTEX,),
)


# Linked lists -------------------------------------------------------------------------------------------------------


def detect_cycle(node: Any) -> bool:
    """Whether following successors never ends."""
    return all(cell.successor is not None for cell in linked(node))


def maybe_cyclic(rng: Random) -> tuple[Any, ...]:
    cells = chain([rng.randint(0, 3) for _ in range(rng.choice((1, 2, 3, 4, rng.randint(5, 40))))])
    if rng.random() < 0.5:
        cells[-1].successor = rng.choice((cells[0], cells[-1], rng.choice(cells)))
    return (cells[0],)


CYCLE = GraphProgram(
    Problem(detect_cycle, maybe_cyclic),
    """
def detect_cycle(node):
    slow = fast = node
    while fast is not None and fast.successor is not None:
        slow, fast = slow.successor, fast.successor.successor
        if slow is fast:
            return True
    return False
""",
    """
def detect_cycle(node):
    slow = fast = node
    while fast.successor is not None:
        slow, fast = slow.successor, fast.successor.successor
        if slow is fast:
            return True
    return False
""",
    (CELL,),
)


def reverse_linked_list(node: Any) -> Any:
    """The first cell of a list with the values from back to front."""
    values = []
    while node is not None:
        values.append(node.value)
        node = node.successor
    return chain(values[::-1])[0] if values else None


def a_chain(rng: Random) -> tuple[Any, ...]:
    cells = chain([rng.randint(-3, 9) for _ in range(rng.choice((0, 1, 2, 3, rng.randint(4, 60))))])
    return (cells[0] if cells else None,)


REVERSE = GraphProgram(
    Problem(reverse_linked_list, a_chain),
    """
def reverse_linked_list(node):
    done = None
    while node is not None:
        node.successor, done, node = done, node, node.successor
    return done
""",
    """
def reverse_linked_list(node):
    done = None
    while node is not None:
        following = node.successor
        node.successor = done
        node = following
    return done
""",
    (CELL,),
)


# Distances ----------------------------------------------------------------------------------------------------------


def shortest_path_length(length_by_edge: dict[Any, int], startnode: Any, goalnode: Any) -> float:
    """Length of a shortest path, infinite where there is none (relaxing all edges until nothing changes)."""
    away = {node: math.inf for edge in length_by_edge for node in edge} | {goalnode: math.inf, startnode: 0}
    for _ in away:
        for (node, following), length in length_by_edge.items():
            away[following] = min(away[following], away[node] + length)
    return away[goalnode]


def weighed_nodes(rng: Random) -> tuple[Any, ...]:
    nodes = vertices(rng)
    lengths = {(node, one): rng.choice((0, 1, rng.randint(1, 20))) for node in nodes for one in node.successors}
    return lengths, rng.choice(nodes), rng.choice(nodes)


PATH = GraphProgram(
    Problem(shortest_path_length, weighed_nodes, "number"),
    """
from heapq import heappop, heappush


def shortest_path_length(length_by_edge, startnode, goalnode):
    heap, done, count = [(0, 0, startnode)], set(), 0
    while heap:
        away, _, node = heappop(heap)
        if node is goalnode:
            return away
        if node in done:
            continue
        done.add(node)
        for one in node.successors:
            count += 1
            heappush(heap, (away + length_by_edge[node, one], count, one))
    return float("inf")
""",
    """
from heapq import heappop, heappush


def shortest_path_length(length_by_edge, startnode, goalnode):
    heap, done, count = [(0, 0, startnode)], set(), 0
    while heap:
        away, _, node = heappop(heap)
        if node is goalnode:
            return away
        if node in done:
            continue
        done.add(node)
        for one in node.successors:
            count += 1
            heappush(heap, (length_by_edge[node, one], count, one))
    return float("inf")
""",
    (VERTEX,),
)


# Orders --------------------------------------------------------------------------------------------------------------


def topological_ordering(nodes: list[Any]) -> list[Any]:
    """The nodes, each behind those that come into it (always taking a node without any left)."""
    waiting, done = list(nodes), []
    while waiting:
        free = next(node for node in waiting if not any(one in waiting for one in node.incoming_nodes))
        waiting.remove(free)
        done.append(free)
    return done


def an_ordering(args: tuple[Any, ...], value: Any) -> bool:
    (nodes,) = args
    place = {node.value: number for number, node in enumerate(value)}
    if len(value) != len(nodes) or place.keys() != {node.value for node in nodes}:
        return False
    return all(place[one.value] < place[node.value] for node in nodes for one in node.incoming_nodes)


def tasks_in_any_order(rng: Random) -> tuple[Any, ...]:
    nodes: list[Any] = [Task(value, [], []) for value in rng.sample(range(50), rng.choice((0, 1, 2, 4, 6, 8)))]
    for i, node in enumerate(nodes):
        for one in nodes[:i]:
            if rng.random() < 0.35:
                node.incoming_nodes.append(one)
                one.outgoing_nodes.append(node)
    rng.shuffle(nodes)
    return (nodes,)


TOPOLOGICAL = GraphProgram(
    Problem(topological_ordering, tasks_in_any_order, "predicate:an_ordering+sequence", predicates=(an_ordering,)),
    """
def topological_ordering(nodes):
    left = {node: len(node.incoming_nodes) for node in nodes}
    done = [node for node in nodes if not left[node]]
    for node in done:
        for one in node.outgoing_nodes:
            left[one] -= 1
            if left[one] == 0:
                done.append(one)
    return done
""",
    """
def topological_ordering(nodes):
    done = [node for node in nodes if not node.incoming_nodes]
    for node in done:
        for one in node.outgoing_nodes:
            if one not in done and set(done).issuperset(one.outgoing_nodes):
                done.append(one)
    return done
""",
    (TASK,),
)

PROGRAMS = (SEARCHING, DEEP, CYCLE, REVERSE, PATH, ALL_PATHS, SINGLE_SOURCE, SPANNING, TOPOLOGICAL)
