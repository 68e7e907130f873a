"""The public interface of a module under test as data: what hidden tests may use of it from outside its process.

A manifest is canonical JSON (`HiddenTests.api`). All parts may be left out:

    {"functions": ["area", "sort"],
     "constants": ["LIMIT"],
     "mutates": ["sort", "Stack.fill"],
     "exceptions": {"Empty": ["IndexError"]},
     "classes": {"Stack": {"methods": ["push"], "class_methods": ["of"], "static_methods": [], "properties": ["top"],
                           "attributes": ["name"], "special": ["__len__", "__iter__"], "bases": [],
                           "compared": [], "suppresses": [], "constructor": true}}}

Values cross as data (`services/tasks/values.py`); objects of declared classes stay where they are and cross as opaque
handles; exceptions cross as their names, without message or attributes. What a manifest cannot carry: functions as
arguments, subclassing in tests, messages of exceptions, asynchronous code, patching of the module's inside.

Two things are decided on the trusted side, or a candidate could turn every failed assert into a passed one: objects
of a class with `compared` attributes are equal when these are, and its own `__eq__` must say the same (declared in
`special` it is the candidate's claim alone, so it is never derived); and a context manager swallows only exceptions
that `suppresses` names. Lists, dicts and sets cross as copies: what one side changes in them later is not seen, but
for the arguments of a call that `mutates` names (never derived), which are afterwards as the candidate left them.
"""

from __future__ import annotations

import ast
import builtins
import keyword
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from services.tasks.values import EXCEPTION_NAMES

COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")
_SINGLE = (
    "neg",
    "pos",
    "abs",
    "invert",
    "len",
    "bool",
    "int",
    "float",
    "index",
    "complex",
    "str",
    "hash",
    "iter",
    "next",
)
_DOUBLE = (
    "contains", "getitem", "delitem", "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or",
    "xor", "lshift", "rshift",
)  # fmt: skip
_REFLECTED = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")
MANAGED = ("__enter__", "__exit__")
OPERATORS: Mapping[str, str] = {
    **{f"__{name}__": name for name in (*COMPARED, *_SINGLE, *_DOUBLE, "setitem")},
    "__and__": "and_",
    "__or__": "or_",
}
"""Special method -> the function of `operator`, or the built-in, that uses it."""
REFLECTED: Mapping[str, str] = {f"__r{name}__": name for name in _REFLECTED}
"""Special method of a right operand -> the function of `operator` that may use it."""
SPECIAL = frozenset((*OPERATORS, *REFLECTED, *MANAGED, "__call__"))
"""Special methods that an interface can forward."""

_NEUTRAL_BASES = frozenset({"object", "ABC", "Generic", "Protocol"})
_LISTS = (
    "methods", "class_methods", "static_methods", "properties", "attributes", "special", "bases", "compared",
    "suppresses",
)  # fmt: skip
_NEVER_SUPPRESSED = ("AssertionError", "Exception", "BaseException")


@dataclass(frozen=True)
class ClassApi:
    """What tests may use of one class. `properties` can be read, `attributes` set too; `bases` are declared classes.

    `compared`: properties or attributes that make two of its objects equal; `suppresses`: exceptions that they may
    swallow as context managers.
    """

    methods: tuple[str, ...] = ()
    class_methods: tuple[str, ...] = ()
    static_methods: tuple[str, ...] = ()
    properties: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    special: tuple[str, ...] = ()
    bases: tuple[str, ...] = ()
    compared: tuple[str, ...] = ()
    suppresses: tuple[str, ...] = ()
    constructor: bool = True

    def to_json(self) -> dict[str, Any]:
        """Canonical-JSON-able data without what is empty."""
        out: dict[str, Any] = {name: list(getattr(self, name)) for name in _LISTS if getattr(self, name)}
        return out if self.constructor else {**out, "constructor": False}


@dataclass(frozen=True)
class Api:
    """A validated manifest.

    `exceptions`: name -> its bases, allow-listed built-ins or other declared ones. `mutates`: functions, or methods as
    "Class.method", that change lists, dicts or sets that they are given.
    """

    functions: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()
    exceptions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    classes: Mapping[str, ClassApi] = field(default_factory=dict)
    mutates: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The manifest as canonical-JSON-able data, without what is empty."""
        out: dict[str, Any] = {}
        if self.functions:
            out["functions"] = list(self.functions)
        if self.constants:
            out["constants"] = list(self.constants)
        if self.mutates:
            out["mutates"] = list(self.mutates)
        if self.exceptions:
            out["exceptions"] = {name: list(bases) for name, bases in self.exceptions.items()}
        if self.classes:
            out["classes"] = {name: kind.to_json() for name, kind in self.classes.items()}
        return out

    def ordered_classes(self) -> list[str]:
        """Class names, bases first."""
        return _ordered({name: kind.bases for name, kind in self.classes.items()})

    def ordered_exceptions(self) -> list[str]:
        """Exception names, bases first."""
        return _ordered(self.exceptions)


def parse(document: Mapping[str, Any]) -> Api:
    """Read a manifest. Raises ValueError that says what is wrong and where."""
    _keys(document, ("functions", "constants", "exceptions", "classes", "mutates"), "the manifest")
    exceptions = document.get("exceptions", {})
    classes = document.get("classes", {})
    if not isinstance(exceptions, Mapping) or not isinstance(classes, Mapping):
        raise ValueError("exceptions and classes of a manifest are objects by name")
    api = Api(
        _names(document.get("functions", ()), "functions"),
        _names(document.get("constants", ()), "constants"),
        {name: _names(exceptions[name], f"exception {name}") for name in _names(exceptions, "exceptions")},
        {name: _class(name, classes[name]) for name in _names(classes, "classes")},
        tuple(document.get("mutates", ())),
    )
    _unique([*api.functions, *api.constants, *api.exceptions, *api.classes], "the module")
    for name, bases in api.exceptions.items():
        if name in EXCEPTION_NAMES:
            raise ValueError(f"exception {name}: a built-in of that name exists")
        for base in bases or ("",):
            if base not in EXCEPTION_NAMES and base not in api.exceptions:
                raise ValueError(
                    f"exception {name}: its base {base!r} is neither declared nor an allow-listed built-in"
                )
    _check_classes(api)
    callables = {*api.functions}
    for name, kind in api.classes.items():
        callables |= {f"{name}.{one}" for one in (*kind.methods, *kind.class_methods, *kind.static_methods)}
    if set(api.mutates) - callables:
        raise ValueError(f"mutates: neither functions nor methods: {', '.join(sorted(set(api.mutates) - callables))}")
    exception_classes(api, "")
    return api


def _check_classes(api: Api) -> None:
    for name, kind in api.classes.items():
        for base in kind.bases:
            if base not in api.classes:
                raise ValueError(f"class {name}: its base {base!r} is not declared")
    api.ordered_classes()
    for name, kind in api.classes.items():
        for compared in kind.compared:
            if not any(compared in (*one.properties, *one.attributes) for one in _line(name, api.classes)):
                raise ValueError(f"class {name}: {compared!r} is compared, but is neither property nor attribute")
        if kind.compared and {"__eq__", "__ne__"} & set(kind.special):
            raise ValueError(f"class {name}: it is compared by attributes or by its own __eq__, not both")
        for error in kind.suppresses:
            if error in _NEVER_SUPPRESSED or (error not in EXCEPTION_NAMES and error not in api.exceptions):
                raise ValueError(f"class {name}: it cannot be allowed to suppress {error!r}")


def _line(name: str, classes: Mapping[str, ClassApi]) -> list[ClassApi]:
    """A class and all its declared bases."""
    return [classes[name], *(above for base in classes[name].bases for above in _line(base, classes))]


def exception_classes(api: Api, module: str) -> dict[str, type[BaseException]]:
    """Classes that stand for the declared exceptions. Raises ValueError for bases that do not go together."""
    made: dict[str, type[BaseException]] = {}
    for name in api.ordered_exceptions():
        above = tuple(made.get(base) or getattr(builtins, base) for base in api.exceptions[name])
        try:
            made[name] = type(name, above, {"__module__": module})
        except TypeError as error:
            raise ValueError(f"exception {name}: {error}") from None
    return made


def _class(name: str, document: Any) -> ClassApi:
    where = f"class {name}"
    _keys(document, (*_LISTS, "constructor"), where)
    special = document.get("special", ())
    for one in special:
        if one not in SPECIAL:
            raise ValueError(f"{where}: special method {one!r} cannot be forwarded")
    if ("__enter__" in special) != ("__exit__" in special):
        raise ValueError(f"{where}: a context manager has both __enter__ and __exit__")
    constructor = document.get("constructor", True)
    if type(constructor) is not bool:
        raise ValueError(f"{where}: constructor is true or false")
    lists = {key: _names(document.get(key, ()), f"{where}, {key}") for key in _LISTS if key != "special"}
    members = [one for key, names in lists.items() if key not in ("bases", "compared", "suppresses") for one in names]
    _unique(members + list(special), where)
    return ClassApi(**lists, special=tuple(special), constructor=constructor)


def _keys(document: Any, known: Iterable[str], where: str) -> None:
    if not isinstance(document, Mapping):
        raise ValueError(f"{where} is not an object")
    unknown = set(document) - set(known)
    if unknown:
        raise ValueError(f"{where} has unknown parts: {', '.join(sorted(map(str, unknown)))}")


def _names(found: Any, where: str) -> tuple[str, ...]:
    if isinstance(found, str) or not isinstance(found, Iterable):
        raise ValueError(f"{where}: a list of names is wanted")
    names = tuple(found)
    for name in names:
        if type(name) is not str or not name.isascii() or not name.isidentifier() or keyword.iskeyword(name):
            raise ValueError(f"{where}: {name!r} is not a name")
        if name.startswith("_"):
            raise ValueError(f"{where}: {name!r} is private")
    return names


def _unique(names: list[str], where: str) -> None:
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"{where} declares twice: {', '.join(sorted(twice))}")


def _ordered(bases: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Names with those that they build on before them. Raises ValueError for a circle."""
    done: list[str] = []

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise ValueError(f"{name} is its own base")
        for base in bases[name]:
            if base in bases and base not in done:
                visit(base, (*above, name))
        if name not in done:
            done.append(name)

    for name in bases:
        visit(name, ())
    return done


def derive(source: str) -> Api:
    """The manifest of a trusted reference's public names, by reading its source (nothing is imported or run).

    `__all__` narrows it where it is a literal. Constants are literals at the top; attributes are what methods assign to
    `self` and what a class annotates. Raises ValueError where a public name cannot be carried, SyntaxError.
    """
    module = ast.parse(source)
    wanted = _exported(module)
    functions: list[str] = []
    constants: list[str] = []
    exceptions: dict[str, list[str]] = {}
    classes: dict[str, Any] = {}
    for node in module.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            constants += [name for name in _literal_targets(node) if _wanted(name, wanted) and name not in constants]
        elif isinstance(node, ast.AsyncFunctionDef) and _wanted(node.name, wanted):
            raise ValueError(f"function {node.name} is asynchronous, which an interface cannot carry")
        elif isinstance(node, ast.FunctionDef) and _wanted(node.name, wanted):
            functions.append(node.name)
        elif isinstance(node, ast.ClassDef) and _wanted(node.name, wanted):
            bases = [base for base in _base_names(node) if base in EXCEPTION_NAMES or base in exceptions]
            if bases:
                exceptions[node.name] = bases
            else:
                classes[node.name] = _derive_class(node, set(classes))
    return parse({"functions": functions, "constants": constants, "exceptions": exceptions, "classes": classes})


def _exported(module: ast.Module) -> set[str] | None:
    for node in module.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return set(ast.literal_eval(node.value))
    return None


def _wanted(name: str, exported: set[str] | None) -> bool:
    return not name.startswith("_") if exported is None else name in exported


def _literal_targets(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    try:
        ast.literal_eval(node.value) if node.value is not None else None
    except ValueError:
        return []
    return [target.id for target in targets if isinstance(target, ast.Name)] if node.value is not None else []


def _base_names(node: ast.ClassDef) -> list[str]:
    found = []
    for base in node.bases:
        if isinstance(base, ast.Subscript):
            base = base.value
        found.append(base.id if isinstance(base, ast.Name) else base.attr if isinstance(base, ast.Attribute) else "?")
    return found


def _derive_class(node: ast.ClassDef, known: set[str]) -> dict[str, Any]:
    found: dict[str, list[str]] = {key: [] for key in _LISTS}
    for base in _base_names(node):
        if base in known:
            found["bases"].append(base)
        elif base not in _NEUTRAL_BASES:
            raise ValueError(f"class {node.name} inherits from {base}, which is not seen here: declare it by hand")
    for item in node.body:
        if isinstance(item, ast.AsyncFunctionDef):
            raise ValueError(f"{node.name}.{item.name} is asynchronous, which an interface cannot carry")
        if isinstance(item, ast.FunctionDef):
            _derive_method(item, found)
        elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            found["attributes"].append(item.target.id)
        elif isinstance(item, ast.Assign):
            found["attributes"] += [target.id for target in item.targets if isinstance(target, ast.Name)]
    if any(_decorator(one) == "dataclass" for one in node.decorator_list):
        found["compared"] = [name for name in found["attributes"] if not name.startswith("_")]
    taken = {name for key in _LISTS if key not in ("attributes", "compared") for name in found[key]}
    fields = [name for name in found["attributes"] if not name.startswith("_") and name not in taken]
    return {
        **{key: list(dict.fromkeys(names)) for key, names in found.items()},
        "attributes": list(dict.fromkeys(fields)),
    }


def _derive_method(item: ast.FunctionDef, found: dict[str, list[str]]) -> None:
    decorators = {_decorator(one) for one in item.decorator_list}
    if item.name in SPECIAL and item.name not in ("__eq__", "__ne__"):
        found["special"].append(item.name)
    elif "setter" in decorators and item.name in found["properties"]:
        found["properties"].remove(item.name)
        found["attributes"].append(item.name)
    elif not item.name.startswith("_"):
        kind = "methods"
        for decorator, key in (
            ("property", "properties"),
            ("cached_property", "properties"),
            ("staticmethod", "static_methods"),
            ("classmethod", "class_methods"),
        ):
            kind = key if decorator in decorators else kind
        found[kind].append(item.name)
    receiver = item.args.args[0].arg if item.args.args and "staticmethod" not in decorators else None
    found["attributes"] += [
        node.attr
        for node in ast.walk(item)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name)
        if node.value.id == receiver
    ]


def _decorator(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        node = node.func
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else "?"
