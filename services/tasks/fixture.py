"""The fixture contract: one repair task as a public half that anyone may read and a hidden half that judges it."""

import hashlib
import json
import random
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from services.runtime.jail.hosts import endpoints
from services.tasks import comparators, values
from services.tasks.comparators import Outcome
from services.tasks.guard import clone
from services.tasks.objects import schema

__all__ = [
    "Budgets",
    "CheckSet",
    "Example",
    "Fixture",
    "HiddenTests",
    "ObjectClass",
    "Outcome",
    "canonical",
    "content_digest",
]

# One in ten calls of a trial is asked twice: an answer that depends on more than the arguments shows itself.
REPEAT_SHARE = 0.1


def canonical(document: Any) -> bytes:
    """Canonical JSON bytes: sorted keys, no spaces, ASCII (values must be tagged already where exactness counts)."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode("ascii")


def content_digest(document: Any) -> str:
    """Text `sha256:` + hex over the canonical JSON of `document`."""
    return "sha256:" + hashlib.sha256(canonical(document)).hexdigest()


@dataclass(frozen=True)
class Budgets:
    """What one trial may spend: model calls, sampled tokens, and seconds of wall clock."""

    turns: int
    tokens: int
    wall_s: float


@dataclass(frozen=True)
class Example:
    """One call with its expected answer; plain values only (see `values`).

    `expected` is an `ExceptionName` where the call must raise.
    """

    args: tuple[Any, ...]
    expected: Any

    def to_json(self) -> dict[str, Any]:
        """Tagged JSON of both sides."""
        return {"args": values.encode(self.args), "expected": values.encode(self.expected)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any], objects: values.Schema = values.NO_NODES) -> "Example":
        """Inverse of `to_json`. Raises values.Undecodable or KeyError."""
        args = values.decode(document["args"], objects)
        if type(args) is not tuple:
            raise values.Undecodable("example arguments must be a tuple")
        return cls(args, values.decode(document["expected"], objects))

    def outcome(self) -> Outcome:
        """The expected answer as an outcome (without the arguments after the call)."""
        if isinstance(self.expected, values.ExceptionName):
            return Outcome(error=self.expected.name)
        return Outcome(value=self.expected)


@dataclass(frozen=True)
class ObjectClass:
    """A class of linked nodes that may appear in arguments and answers, by its fields in the order that they are told.

    `module` empty: a plain class of that name is made beside the candidate; else it is the candidate's own
    `module.name`. Nodes are rebuilt without calling `__init__`.
    """

    name: str
    fields: tuple[str, ...]
    module: str = ""

    def to_json(self) -> dict[str, Any]:
        """Canonical-JSON-able data."""
        return {"name": self.name, "fields": list(self.fields), "module": self.module}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "ObjectClass":
        """Inverse of `to_json`. Raises KeyError or TypeError."""
        return cls(document["name"], tuple(document["fields"]), document["module"])


@dataclass(frozen=True)
class HiddenTests:
    """pytest files that judge a module. `outside`: they run in a trusted process over an interface that asks the jail.

    `api` is the canonical-JSON-able manifest of that interface (see `services/tasks/api.py`). `inside` (evidence E1):
    they run in the candidate's interpreter, so that a pass proves nothing. `expected` are the test ids (relative file,
    `::`, name) that must all be reported as passed.
    """

    files: Mapping[str, str]
    module: str
    mode: str
    expected: tuple[str, ...]
    api: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Canonical-JSON-able data."""
        return {
            "files": dict(self.files),
            "module": self.module,
            "mode": self.mode,
            "expected": list(self.expected),
            "api": dict(self.api),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "HiddenTests":
        """Inverse of `to_json`. Raises KeyError, TypeError or ValueError."""
        fields = dict(document)
        if fields["mode"] not in ("outside", "inside"):
            raise ValueError(f"mode {fields['mode']!r} of hidden tests is neither outside nor inside")
        files, expected = fields["files"], fields["expected"]
        if not isinstance(files, Mapping) or not isinstance(fields.get("api", {}), Mapping):
            raise TypeError("files and api of hidden tests are objects")
        if not all(isinstance(text, str) for text in (*files, *files.values(), fields["module"])):
            raise TypeError("files and module of hidden tests are texts")
        if not isinstance(expected, list | tuple) or not all(isinstance(name, str) for name in expected):
            raise TypeError("expected hidden tests are a list of ids")
        fields["expected"] = tuple(expected)
        return cls(**fields)


@dataclass(frozen=True)
class Fixture:
    """The public half of a task: everything that sampler, sandbox and policy may see.

    `first_failure` is what the unrepaired code did on the first public check, in the words of `feedback`.
    `hosts` ("name:port") are what its exploration workspaces may reach through a proxy outside; none by default.
    No assessment can reach them.
    `objects` are the classes of linked nodes that its calls exchange.
    `domain` says in words what the function is asked and must answer; empty where nobody stated it.
    """

    task_id: str
    family: str
    problem: str
    bug_kind: str
    entry: str
    base_tree: Mapping[str, str]
    allowed_globs: tuple[str, ...]
    tools: tuple[str, ...]
    budgets: Budgets
    public_checks: tuple[Example, ...]
    first_failure: str
    comparator: str
    deterministic: bool
    check_digest: str
    hosts: tuple[str, ...] = ()
    objects: tuple[ObjectClass, ...] = ()
    domain: str = ""

    @cached_property
    def digest(self) -> str:
        """Content digest of the public half (which names the hidden half by its own digest)."""
        return content_digest(self.to_json())

    def to_json(self) -> dict[str, Any]:
        """The public half as canonical-JSON-able data; what is empty by default is left out, so digests keep."""
        out = {
            "task_id": self.task_id,
            "family": self.family,
            "problem": self.problem,
            "bug_kind": self.bug_kind,
            "entry": self.entry,
            "base_tree": dict(self.base_tree),
            "allowed_globs": list(self.allowed_globs),
            "tools": list(self.tools),
            "budgets": {
                "turns": self.budgets.turns,
                "tokens": self.budgets.tokens,
                "wall_s": self.budgets.wall_s,
            },
            "public_checks": [example.to_json() for example in self.public_checks],
            "first_failure": self.first_failure,
            "comparator": self.comparator,
            "deterministic": self.deterministic,
            "check_digest": self.check_digest,
        }
        if self.hosts:
            out["hosts"] = list(self.hosts)
        if self.objects:
            out["objects"] = [kind.to_json() for kind in self.objects]
        if self.domain:
            out["domain"] = self.domain
        return out

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Fixture":
        """Inverse of `to_json`. Raises KeyError, TypeError or ValueError on a document of another shape."""
        fields = dict(document)
        fields["allowed_globs"] = tuple(fields["allowed_globs"])
        fields["tools"] = tuple(fields["tools"])
        fields["budgets"] = Budgets(**fields["budgets"])
        fields["hosts"] = tuple(fields.get("hosts", ()))
        endpoints(fields["hosts"])
        fields["objects"] = tuple(ObjectClass.from_json(kind) for kind in fields.get("objects", ()))
        nodes = schema(fields["objects"])
        fields["public_checks"] = tuple(Example.from_json(example, nodes) for example in fields["public_checks"])
        comparators.parse(fields["comparator"])
        return cls(**fields)


@dataclass(frozen=True)
class CheckSet:
    """The hidden half of a task: only the verifier and the commands of `rollstream tasks` load it.

    Evidence "E3": fresh inputs from the generator of `problem`, judged by its trusted reference; `oracle_digest` pins
    generator and reference, so a document made with another catalogue is refused instead of judging by other rules.
    Evidence "E2": the fixed cases, judged by their stored answers.
    `decoys` are the public examples, mixed in so that asking does not tell hidden from public.
    `known_bad` are trees that must fail (the first is the unrepaired base), `reference` is a tree that must pass.
    """

    task_id: str
    problem: str
    entry: str
    comparator: str
    evidence: str
    cases_per_trial: int
    fixed_cases: tuple[Example, ...]
    call_cpu_s: float
    known_bad: tuple[Mapping[str, str], ...]
    decoys: tuple[Example, ...] = ()
    oracle_digest: str = ""
    reference: Mapping[str, str] = field(default_factory=dict)
    objects: tuple[ObjectClass, ...] = ()
    hidden_tests: HiddenTests | None = None
    _fixed: dict[str, Example] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        inside = self.hidden_tests is not None and self.hidden_tests.mode == "inside"
        if self.evidence not in (("E1",) if inside else ("E2", "E3")):
            wanted = (
                "not E1, though its tests run inside the candidate's interpreter" if inside else "neither E2 nor E3"
            )
            raise ValueError(f"evidence level {self.evidence!r} of {self.task_id} is {wanted}")
        comparators.parse(self.comparator)
        for case in self.fixed_cases:
            self._fixed[values.dumps(case.args)] = case

    @cached_property
    def digest(self) -> str:
        """Content digest of the hidden half."""
        return content_digest(self.to_json())

    def to_json(self) -> dict[str, Any]:
        """The hidden half as canonical-JSON-able data; what is empty by default is left out, so digests keep."""
        out = {
            "task_id": self.task_id,
            "problem": self.problem,
            "entry": self.entry,
            "comparator": self.comparator,
            "evidence": self.evidence,
            "cases_per_trial": self.cases_per_trial,
            "fixed_cases": [case.to_json() for case in self.fixed_cases],
            "call_cpu_s": self.call_cpu_s,
            "known_bad": [dict(tree) for tree in self.known_bad],
            "decoys": [example.to_json() for example in self.decoys],
            "oracle_digest": self.oracle_digest,
            "reference": dict(self.reference),
        }
        if self.objects:
            out["objects"] = [kind.to_json() for kind in self.objects]
        if self.hidden_tests is not None:
            out["hidden_tests"] = self.hidden_tests.to_json()
        return out

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "CheckSet":
        """Inverse of `to_json`. Raises KeyError, TypeError or ValueError on a document of another shape."""
        fields = dict(document)
        fields["objects"] = tuple(ObjectClass.from_json(kind) for kind in fields.get("objects", ()))
        nodes = schema(fields["objects"])
        fields["fixed_cases"] = tuple(Example.from_json(case, nodes) for case in fields["fixed_cases"])
        fields["decoys"] = tuple(Example.from_json(example, nodes) for example in fields["decoys"])
        fields["known_bad"] = tuple(fields["known_bad"])
        if "hidden_tests" in fields:
            fields["hidden_tests"] = HiddenTests.from_json(fields["hidden_tests"])
        return cls(**fields)

    def inputs(self, rng: random.Random) -> list[tuple[Any, ...]]:
        """Arguments of one trial in the order to ask them; no two share a mutable object.

        E3: `cases_per_trial` argument tuples, of which the decoys and a tenth of repeats are part, the rest fresh small
        ones; and beside them every stratum of the problem's domain, with a tenth of repeats of its own.
        Where the contract has exceptions, at least one must raise: a handler that catches all is no answer.
        E2: every fixed case, and a tenth of them again.
        """
        if self.evidence == "E3":
            chosen = self._fresh(rng)
        else:
            chosen = [case.args for case in self.fixed_cases]
            chosen += [rng.choice(chosen) for _ in range(round(len(chosen) * REPEAT_SHARE))]
        rng.shuffle(chosen)
        copy = deepcopy if self.objects else clone  # linked nodes keep who is who
        return [copy(args) for args in chosen]

    def _fresh(self, rng: random.Random) -> list[tuple[Any, ...]]:
        from services.tasks.oracle import oracle

        repeats = round(self.cases_per_trial * REPEAT_SHARE)
        chosen = [example.args for example in self.decoys]
        source = oracle(self.problem, self.oracle_digest)
        fresh = [source.generate(rng) for _ in range(self.cases_per_trial - repeats - len(chosen))]
        raising = source.raising(rng) if fresh else None
        if raising is not None:
            fresh[-1] = raising
        chosen += fresh
        strata = source.domain.inputs(rng)
        chosen += [rng.choice(chosen) for _ in range(repeats)]
        return chosen + strata + [rng.choice(strata) for _ in range(round(len(strata) * REPEAT_SHARE))]

    def expected(self, args: tuple[Any, ...]) -> Outcome:
        """The trusted answer for `args`, which are not changed. Raises KeyError (E2) for arguments of no fixed case."""
        if self.evidence == "E2":
            return self._fixed[values.dumps(args)].outcome()
        from services.tasks.oracle import oracle

        return oracle(self.problem, self.oracle_digest).answer(args)

    def agrees(self, expected: Outcome, got: Outcome, args: tuple[Any, ...] = ()) -> bool:
        """Whether `got` counts as right under the declared comparator; a predicate also looks at the call's `args`."""
        predicate = comparators.parse(self.comparator).predicate
        if not predicate:
            return comparators.agree(self.comparator, expected, got)
        from services.tasks.oracle import oracle

        holds = oracle(self.problem, self.oracle_digest).predicate(predicate)
        return comparators.agree(self.comparator, expected, got, lambda value: holds(deepcopy(args), value))

    def consistent(self, first: Outcome, again: Outcome) -> bool:
        """Whether one program may answer one question with both, each of which is judged by itself as well."""
        return comparators.consistent(self.comparator, first, again)
