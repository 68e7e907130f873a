"""The module that hidden tests import in the trusted process: every use of it asks the candidate in its jail."""

from __future__ import annotations

import builtins
import types
import weakref
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Protocol

from services.tasks import values
from services.tasks.api import COMPARED, OPERATORS, REFLECTED, Api, ClassApi, exception_classes

ITERATOR = "iterator"
"""Class name of a handle to something that is only gone through: a generator, what `__iter__` gave."""


class Uncrossable(BaseException):
    """A test passed what is no value, such as a function. No `pytest.raises(Exception)` takes it for an answer."""


class Contradiction(BaseException):
    """The candidate's `__eq__` says other than the attributes that are declared to make objects equal."""


class Asking(Protocol):
    """Carries one question to the candidate.

    The question is JSON-able; values in it are tagged JSON, handles included. The answer is {"r": tagged value} or
    {"x": exception name}. When there will be no answer the call does not return.
    """

    def __call__(self, question: dict[str, Any]) -> Mapping[str, Any]: ...


class Remote:
    """An object of the candidate's, by the number under which its process keeps it; "": none."""

    __slots__ = ("__weakref__", "_home", "_number")
    _home: Interface
    _number: str

    def __init_subclass__(cls, declared: bool = False, **rest: Any) -> None:
        if not declared:
            raise TypeError("a class of the module under test cannot be subclassed from outside")
        super().__init_subclass__(**rest)

    def __del__(self) -> None:
        number = getattr(self, "_number", "")
        if number:
            self._home.let_go.append(number)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {getattr(self, '_number', 'unmade')} of the candidate>"


class Going(Remote, declared=True):
    """Something that is gone through one by one."""

    __slots__ = ()

    def __iter__(self) -> Going:
        return self

    def __next__(self) -> Any:
        return self._home.ask("operator", name="next", args=(self,))


class Interface:
    """Builds the module of a manifest and turns answers into values, proxies and exceptions."""

    def __init__(self, api: Api, asking: Asking) -> None:
        self._asking = asking
        self.let_go: list[str] = []
        self._known: weakref.WeakValueDictionary[str, Remote] = weakref.WeakValueDictionary()
        self._errors: dict[str, type[BaseException]] = {}
        self._classes: dict[str, type[Remote]] = {ITERATOR: Going}
        self._api = api

    def module(self, name: str) -> ModuleType:
        """The module, not yet in `sys.modules`."""
        made = ModuleType(name, "The candidate's module, asked from outside.")
        self._errors = exception_classes(self._api, name)
        made.__dict__.update(self._errors)
        for kind in self._api.ordered_classes():
            self._classes[kind] = self._class(kind, self._api.classes[kind], name)
            setattr(made, kind, self._classes[kind])
        for function in self._api.functions:
            setattr(made, function, self._function(function, name))
        constants = frozenset(self._api.constants)

        def constant(wanted: str) -> Any:
            if wanted not in constants:
                raise AttributeError(f"module {name!r} has no declared {wanted!r}")
            return self.ask("get", name=wanted)

        made.__dict__["__getattr__"] = constant
        return made

    def ask(
        self,
        what: str,
        target: Remote | None = None,
        name: str = "",
        args: tuple[Any, ...] = (),
        named: Mapping[str, Any] | None = None,
    ) -> Any:
        """One question. Returns what the candidate returned or raises what it raised.

        Raises Uncrossable for arguments that are no values.
        """
        question: dict[str, Any] = {"ask": what, "name": name}
        if target is not None:
            question["target"] = target._number
        try:
            question["args"] = self._tagged(args)
            question["named"] = self._tagged(dict(named or {}))
        except values.Unencodable as error:
            raise Uncrossable(str(error)) from None
        if self.let_go:
            question["release"], self.let_go = self.let_go, []
        answer = self._asking(question)
        if "after" in answer and self._mutates(target, name):
            after = values.decode(answer["after"], handle=self._proxy)
            for given, left in zip((*args, *(named or {}).values()), after, strict=True):
                _refresh(given, left)
        if "x" in answer:
            raise self._error(answer["x"])
        return values.decode(answer["r"], handle=self._proxy)

    def _mutates(self, target: Remote | None, name: str) -> bool:
        owners = ("",) if target is None else (f"{kind.__name__}." for kind in type(target).__mro__)
        return any(owner + name in self._api.mutates for owner in owners)

    def _error(self, names: str) -> BaseException:
        return error_class(names, self._errors)()

    def error_name(self, error: BaseException) -> str:
        """How an exception of the tests is named to the candidate: its nearest declared or allow-listed base."""
        names = (base.__name__ for base in type(error).__mro__ if self._errors.get(base.__name__) is base)
        return next(names, values.exception_name(error))

    def _tagged(self, value: Any) -> Any:
        """Tagged JSON of a value that may hold proxies at any depth."""
        if isinstance(value, Remote):
            return {"h": [value._number, type(value).__name__]}
        if type(value) is list:
            return [self._tagged(item) for item in value]
        if type(value) is tuple:
            return {"t": [self._tagged(item) for item in value]}
        if type(value) is dict:
            return {"d": [[self._tagged(key), self._tagged(item)] for key, item in value.items()]}
        if type(value) in (set, frozenset):
            return {"s" if type(value) is set else "z": [self._tagged(item) for item in value]}
        return values.encode(value)

    def _proxy(self, number: str, kind: str) -> Remote:
        known = self._known.get(number)
        if known is not None:
            return known
        if number in self.let_go:  # its last proxy went while this answer was on its way
            self.let_go.remove(number)
        made = object.__new__(self._classes[kind])
        self.adopt(made, number)
        return made

    def adopt(self, proxy: Remote, number: str) -> None:
        """From now on `proxy` stands for the object of that number."""
        proxy._home, proxy._number = self, number
        self._known[number] = proxy

    # -- what the module is made of ----------------------------------------------------------------------------------

    def _function(self, name: str, module: str) -> Callable[..., Any]:
        def function(*args: Any, **named: Any) -> Any:
            return self.ask("call", name=name, args=args, named=named)

        function.__name__ = function.__qualname__ = name
        function.__module__ = module
        return function

    def _class(self, name: str, kind: ClassApi, module: str) -> type[Remote]:
        bases = tuple(self._classes[base] for base in kind.bases) or (Remote,)
        body: dict[str, Any] = {"__slots__": (), "__module__": module}
        body["__init__"] = self._constructor(name, kind)
        for method in kind.methods:
            body[method] = _method(method)
        for method in (*kind.class_methods, *kind.static_methods):
            body[method] = classmethod(self._class_method(method))
        for field in kind.properties:
            body[field] = property(_getter(field))
        for field in kind.attributes:
            body[field] = property(_getter(field), _setter(field))
        for special in kind.special:
            body[special] = self._leaving(kind.suppresses) if special == "__exit__" else _special(special)
        if kind.compared:
            body["__eq__"] = _equality(kind.compared)
        if "__eq__" in body and "__hash__" not in kind.special:
            body["__hash__"] = None
        made: type[Remote] = types.new_class(name, bases, {"declared": True}, lambda space: space.update(body))
        return made

    def _constructor(self, name: str, kind: ClassApi) -> Callable[..., None]:
        def construct(proxy: Remote, *args: Any, **named: Any) -> None:
            if not kind.constructor:
                raise TypeError(f"{name} declares no constructor")
            made = self.ask("call", name=name, args=args, named=named)
            if type(made) is not type(proxy):
                raise TypeError(f"{name}() gave no {name}")
            number, made._number = made._number, ""  # the object is the proxy's from now on
            self.adopt(proxy, number)

        return construct

    def _leaving(self, suppressed: tuple[str, ...]) -> Callable[..., bool]:
        def leave(proxy: Remote, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> bool:
            swallowed = bool(self.ask("leave", proxy, "" if error is None else self.error_name(error)))
            allowed = tuple(self._errors.get(name) or getattr(builtins, name) for name in suppressed)
            return swallowed and isinstance(error, allowed) and not isinstance(error, AssertionError)

        return leave

    def _class_method(self, method: str) -> Callable[..., Any]:
        def call(kind: type[Remote], *args: Any, **named: Any) -> Any:
            return self.ask("call", name=f"{kind.__name__}.{method}", args=args, named=named)

        return call


def error_class(names: str, declared: Mapping[str, type[BaseException]]) -> type[BaseException]:
    """The class of an exception by the names in an answer: declared or built-in ones, joined by "+".

    Raises AttributeError for another name, TypeError for classes that do not go together.
    """
    kinds = [declared.get(name) or getattr(builtins, name) for name in names.split("+")]
    return kinds[0] if len(kinds) == 1 else type(kinds[0].__name__, tuple(kinds), {})


def _refresh(given: Any, left: Any) -> Any:
    """What stands for `given` once the candidate left `left` in its place: itself, changed, where both are one kind."""
    if type(given) is not type(left) or type(given) not in (list, dict, set):
        return left
    if type(given) is list:
        kept = [_refresh(*pair) for pair in zip(given, left, strict=False)]
        given[:] = kept + left[len(kept) :]
    elif type(given) is dict:
        now = {key: _refresh(given[key], value) if key in given else value for key, value in left.items()}
        given.clear()
        given.update(now)
    else:
        given.clear()
        given.update(left)
    return given


def _method(name: str) -> Callable[..., Any]:
    def method(self: Remote, *args: Any, **named: Any) -> Any:
        return self._home.ask("method", self, name, args, named)

    method.__name__ = name
    return method


def _getter(name: str) -> Callable[[Remote], Any]:
    return lambda self: self._home.ask("get", self, name)


def _setter(name: str) -> Callable[[Remote, Any], None]:
    def put(self: Remote, value: Any) -> None:
        self._home.ask("set", self, name, (value,))

    return put


def _equality(fields: tuple[str, ...]) -> Callable[[Remote, object], Any]:
    def equal(self: Remote, other: object) -> Any:
        if type(self) is not type(other):
            return NotImplemented
        same = all(getattr(self, field) == getattr(other, field) for field in fields)
        said = self._home.ask("operator", name="eq", args=(self, other))
        if said is not same:
            raise Contradiction(f"objects of {type(self).__name__}: equal by {fields} {same}, by __eq__ {said}")
        return same

    return equal


def _special(name: str) -> Callable[..., Any]:
    if name in REFLECTED:
        return lambda self, other: self._home.ask("operator", name=REFLECTED[name], args=(other, self))
    if name not in OPERATORS:
        return _method(name)  # __call__, __enter__

    def operate(self: Remote, *others: Any) -> Any:
        # What is no object of the candidate's equals none of them, whatever its own code would say.
        if OPERATORS[name] in COMPARED and not isinstance(others[0], Remote):
            return NotImplemented
        return self._home.ask("operator", name=OPERATORS[name], args=(self, *others))

    return operate
