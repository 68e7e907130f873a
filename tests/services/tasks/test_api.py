"""Manifests of interfaces: what a reference's source says, and a word for everything that cannot be carried."""

import json

import pytest

from services.tasks import api

SOURCE = """
from abc import ABC
from dataclasses import dataclass
LIMIT, _hidden = 3, 4
NAMES: list[str] = ["a"]
made = object()

def area(x): ...
def _private(): ...

class Wrong(ValueError): ...
class Worse(Wrong, KeyError): ...

class Base(ABC):
    def __init__(self):
        self.name = ""
        self._own = 1
    @property
    def size(self): ...
    @property
    def width(self): ...
    @width.setter
    def width(self, value): ...

class Box(Base):
    def __len__(self): ...
    def __eq__(self, other): ...
    def __getitem__(self, i): ...
    @classmethod
    def of(cls): ...
    @staticmethod
    def zero(): ...
    def open(self): ...

@dataclass
class Point:
    x: int
    y: int = 0
"""


def test_the_manifest_of_a_source() -> None:
    found = api.derive(SOURCE)
    assert found.to_json() == {
        "functions": ["area"],
        "constants": ["NAMES"],
        "exceptions": {"Wrong": ["ValueError"], "Worse": ["Wrong", "KeyError"]},
        "classes": {
            "Base": {"properties": ["size"], "attributes": ["name", "width"]},
            "Box": {
                "methods": ["open"], "class_methods": ["of"], "static_methods": ["zero"],
                "special": ["__len__", "__getitem__"], "bases": ["Base"],
            },
            "Point": {"attributes": ["x", "y"], "compared": ["x", "y"]},
        },
    }  # fmt: skip
    assert api.parse(json.loads(json.dumps(found.to_json()))) == found
    assert found.ordered_classes().index("Base") < found.ordered_classes().index("Box")


def test_all_narrows_it() -> None:
    assert api.derive('__all__ = ["f"]\ndef f(): ...\ndef g(): ...\n').to_json() == {"functions": ["f"]}


@pytest.mark.parametrize(("source", "word"), [
    ("async def f(): ...", "asynchronous"),
    ("class A:\n    async def f(self): ...", "asynchronous"),
    ("class A(dict): ...", "inherits from dict"),
    ("class A(other.Thing): ...", "inherits from Thing"),
])  # fmt: skip
def test_a_source_that_cannot_be_carried(source: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        api.derive(source)


@pytest.mark.parametrize(("document", "word"), [
    ({"function": []}, "unknown parts: function"),
    ({"functions": "area"}, "list of names"),
    ({"functions": ["a b"]}, "not a name"),
    ({"functions": ["class"]}, "not a name"),
    ({"functions": ["_x"]}, "private"),
    ({"functions": ["a", "a"]}, "twice"),
    ({"functions": ["a"], "classes": {"a": {}}}, "twice"),
    ({"classes": []}, "objects by name"),
    ({"functions": ["f"], "mutates": ["f", "A.g"]}, "neither functions nor methods: A.g"),
    ({"classes": {"A": []}}, "not an object"),
    ({"classes": {"A": {"bases": ["B"]}}}, "not declared"),
    ({"classes": {"A": {"bases": ["B"]}, "B": {"bases": ["A"]}}}, "its own base"),
    ({"classes": {"A": {"special": ["__reduce__"]}}}, "cannot be forwarded"),
    ({"classes": {"A": {"special": ["__enter__"]}}}, "both __enter__ and __exit__"),
    ({"classes": {"A": {"suppresses": ["AssertionError"]}}}, "suppress"),
    ({"classes": {"A": {"compared": ["x"]}}}, "neither property nor attribute"),
    ({"classes": {"A": {"attributes": ["x"], "compared": ["x"], "special": ["__eq__"]}}}, "not both"),
    ({"classes": {"A": {"suppresses": ["Exception"]}}}, "suppress"),
    ({"classes": {"A": {"constructor": 1}}}, "true or false"),
    ({"classes": {"A": {"methods": ["x"], "attributes": ["x"]}}}, "twice"),
    ({"exceptions": {"E": []}}, "neither declared nor"),
    ({"exceptions": {"E": ["Warning"]}}, "neither declared nor"),
    ({"exceptions": {"E": ["F"], "F": ["E"]}}, "its own base"),
    ({"exceptions": {"E": ["OSError", "SyntaxError"]}}, "layout|conflict"),
    ({"exceptions": {"ValueError": ["Exception"]}}, "built-in of that name"),
])  # fmt: skip
def test_a_manifest_that_is_wrong_says_so(document: dict, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        api.parse(document)
