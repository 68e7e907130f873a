"""Protects the forgeries of certification: each is a program of the wanted name that solves nothing."""

import ast

import pytest

from services.tasks.forgeries import forgeries


@pytest.mark.parametrize("what", forgeries("entry"))
def test_each_is_a_program_of_that_name(what: str) -> None:
    source = forgeries("entry")[what]
    compile(source, what, "exec")
    names = {node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)}
    assert "entry" in names or "import" in what  # the one that ends while it is imported needs none
    assert "{" not in source.replace('{"verdict"', "")


def test_they_differ() -> None:
    found = forgeries("f")
    assert len(set(found.values())) == len(found) == 12
