"""An example module with classes, properties, exceptions, blocks and iteration; its tests; broken variants."""

SHELF = '''
from dataclasses import dataclass

LIMIT = 3


class ShelfError(Exception):
    def __init__(self, what, where):
        super().__init__(f"{what} at {where}")


class Full(ShelfError):
    pass


class Missing(ShelfError, LookupError):
    pass


@dataclass
class Book:
    title: str
    pages: int = 100

    def thicker(self, other):
        return self.pages > other.pages


class Shelf:
    """Holds a few books; changes in a `with` block that ends by an error are undone."""

    def __init__(self, *books, name="shelf"):
        self.name = name
        self._books = list(books)
        self._before = None

    @classmethod
    def of_titles(cls, *titles):
        return cls(*map(Book, titles))

    @staticmethod
    def limit():
        return LIMIT

    @property
    def pages(self):
        return sum(book.pages for book in self._books)

    def put(self, book):
        if len(self._books) >= LIMIT:
            raise Full(book, self.name)
        self._books.append(book)
        return self

    def take(self, title):
        for book in self._books:
            if book.title == title:
                self._books.remove(book)
                return book
        raise Missing(title, self.name)

    def __len__(self):
        return len(self._books)

    def __iter__(self):
        return iter(self._books)

    def __contains__(self, title):
        return any(book.title == title for book in self._books)

    def __getitem__(self, index):
        return self._books[index]

    def __enter__(self):
        self._before = list(self._books)
        return self

    def __exit__(self, kind, error, trace):
        if kind is not None:
            self._books = self._before
        return isinstance(error, Full)


class Reading(Shelf):
    def next_title(self):
        return self[0].title


def pages_of(shelf, titles):
    return {title: book.pages for title in titles for book in shelf if book.title == title}


def counted(shelf):
    for number, book in enumerate(shelf):
        yield number, book.title
'''

TESTS = """
import pytest

import library.shelf
from library.shelf import LIMIT, Book, Full, Missing, Reading, Shelf, ShelfError, counted, pages_of


@pytest.fixture
def shelf():
    made = Shelf(Book("a", 10), name="mine")
    yield made.put(Book("b", pages=20))
    assert len(made) <= LIMIT


def test_values_and_properties(shelf):
    assert (shelf.name, shelf.pages, len(shelf), Shelf.limit()) == ("mine", 30, 2, 3)
    shelf.name = "yours"
    assert shelf.name == "yours"
    with pytest.raises(AttributeError):
        shelf.pages = 3
    assert library.shelf.LIMIT == LIMIT == 3


def test_objects_keep_their_identity(shelf):
    book = Book("c")
    assert shelf.put(book) is shelf
    assert shelf[2] is book
    assert shelf.take("c") is book and isinstance(book, Book)
    assert Book("c") == Book("c") and Book("c") != Book("d") and not Book("c") == "c"
    assert Book("x", 5).thicker(Book("y", 4)) is True


def test_going_through(shelf):
    assert [book.title for book in shelf] == ["a", "b"]
    assert "a" in shelf and "z" not in shelf
    assert list(counted(shelf)) == [(0, "a"), (1, "b")]
    assert pages_of(shelf, ["b", "z"]) == {"b": 20}
    with pytest.raises(IndexError):
        shelf[9]


def test_exceptions(shelf):
    with pytest.raises(Missing) as caught:
        shelf.take("z")
    assert isinstance(caught.value, LookupError) and isinstance(caught.value, ShelfError)
    shelf.put(Book("c"))
    with pytest.raises(Full):
        shelf.put(Book("d"))


def test_blocks(shelf):
    with pytest.raises(Missing), shelf as same:
        assert same is shelf
        shelf.take("a")
        shelf.take("a")
    assert len(shelf) == 2
    with shelf:
        shelf.take("a")
        shelf.put(Book("e")).put(Book("f")).put(Book("g"))
    assert [book.title for book in shelf] == ["a", "b"]
    with shelf:
        shelf.take("a")
    assert len(shelf) == 1


@pytest.mark.parametrize("titles", [("p",), ("p", "q")])
def test_made_by_the_class(titles):
    made = Reading.of_titles(*titles)
    assert isinstance(made, Reading) and isinstance(made, Shelf)
    assert (made.next_title(), len(made)) == ("p", len(titles))
"""

IDS = tuple(
    f"tests/test_shelf.py::test_{name}"
    for name in (
        "values_and_properties", "objects_keep_their_identity", "going_through", "exceptions", "blocks",
        "made_by_the_class[titles0]", "made_by_the_class[titles1]",
    )
)  # fmt: skip

BROKEN = {
    "equal to everything": SHELF.replace(
        "def thicker", "def __eq__(self, other):\n        return True\n\n    def thicker"
    ),
    "undoes nothing": SHELF.replace("self._books = self._before", "pass"),
    "forgets the exception": SHELF.replace("raise Missing(title, self.name)", "raise KeyError(title)"),
    "gives a copy": SHELF.replace("return book\n        raise", "return Book(book.title, book.pages)\n        raise"),
}
