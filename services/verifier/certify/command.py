"""The command line of certification: `rollstream tasks certify` and `rollstream tasks certificates`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from services.runtime.errors import UserError
from services.runtime.screen import cell, console, grid, say, say_json
from services.tasks import certificates
from services.tasks.certificates import CONFIDENCE, Certificate, Certificates, DomainMutants, Tally
from services.tasks.commands import Source, load
from services.tasks.fixture import CheckSet
from services.tasks.taskset import TaskSet, UnknownTask
from services.tasks.training import read, read_file

if TYPE_CHECKING:
    from services.verifier.attribution import Facts
    from services.verifier.certify.runner import Setting
    from services.verifier.certify.runs import CheckRun

# Shorter work needs no progress display.
_PATIENCE_S = 2.0
_SHOWN = 12


def add_to(app: typer.Typer) -> None:
    """Make both commands part of `rollstream tasks`."""
    app.command("certify")(certify)
    app.command("certificates")(list_certificates)


def certify(
    task_ids: Annotated[list[str] | None, typer.Argument(help="Task ids as `list` prints them.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every task of the source.")] = False,
    source: Source = "catalogue",
    backend: Annotated[str, typer.Option(help="bubblewrap or docker; default: as configured.")] = "",
    config: Annotated[
        Path | None, typer.Option("--config", help="A run's TOML file, for the verifier's limits.")
    ] = None,
    out: Annotated[Path, typer.Option(help="File of certificates; what it holds already is kept.")] = Path(
        "certificates.json"
    ),
    runs: Annotated[int, typer.Option(min=1, help="Reference runs per kind of check; 300 bound flakes at 1 %.")] = 300,
    seed: Annotated[int, typer.Option(help="What all trial seeds are derived from.")] = 0,
    replace: Annotated[bool, typer.Option("--replace", help="Also certify anew what has a certificate.")] = False,
    replay: Annotated[
        int | None, typer.Option(metavar="SEED", help="Only show what one task's trees do at this trial seed.")
    ] = None,
) -> None:
    """Certify how tasks are judged, in the verifier's own sandboxes; writes certificates, exit 1 on a quarantine."""
    if bool(task_ids) is everything:
        raise UserError("some tasks or all of them?", "rollstream tasks certify", "name task ids, or give --all")
    tasks = load(source)
    checks = _chosen(tasks, task_ids, source)
    if replay is not None:
        with _verifier(backend, config, runs, seed) as (check_run, _):
            _replay(check_run, checks, replay)
        return
    kept = read_file(out) if out.exists() else Certificates()
    waiting = [check for check in checks if replace or not _tried(kept.get(check.digest))]
    if waiting:
        with _verifier(backend, config, runs, seed) as (check_run, setting):
            kept = _certify(check_run, setting, waiting, kept, out)
    found = [certificate for check in checks if (certificate := kept.get(check.digest)) is not None]
    _report(found, len(checks) - len(waiting), out)
    if any(certificate.state != "certified" for certificate in found):
        raise typer.Exit(1)


def _tried(held: Certificate | None) -> bool:
    """Whether a certificate need not be made anew: domain mutants were tried, or nothing was worth trying them."""
    return held is not None and (held.pool.domain is not None or held.state != "certified")


def _chosen(tasks: TaskSet, task_ids: Sequence[str] | None, source: str) -> list[CheckSet]:
    try:
        return [tasks.checks.get(task_id) for task_id in task_ids] if task_ids else list(tasks.checks)
    except UnknownTask as error:
        raise UserError(str(error), f"tasks of {source}", "see `rollstream tasks list`") from error


@contextmanager
def _verifier(backend: str, config: Path | None, runs: int, seed: int) -> Iterator[tuple[CheckRun, Setting]]:
    """The verifier's own way to run a check on the configured backend, self-tested, and what is written down of it."""
    from services.runtime import settings as configuration
    from services.runtime.jail.backend import open_backend
    from services.verifier import main, trial
    from services.verifier.attribution import Boots
    from services.verifier.certify.runner import Setting

    overrides = {"isolation": {"backend": backend}} if backend else {}
    settings = configuration.load(config, **overrides)
    bounds, boots = main.bounds(settings.verifier), Boots()
    workers = len(os.sched_getaffinity(0)) + 1
    with open_backend(settings.isolation, 2 * workers) as host:
        host.check()
        digest = main.verifier_digest(settings.verifier)
        setting = Setting(digest, host.name, bounds.limits.cpu_s, workers, runs, seed)

        def check_run(tree: Mapping[str, str], check: CheckSet, trial_seed: int) -> Facts:
            return boots.seen(trial.run(host, tree, check, trial_seed, bounds))

        yield check_run, setting


def _replay(check_run: CheckRun, checks: Sequence[CheckSet], trial_seed: int) -> None:
    """Print how the reference and every tree that must fail end at one trial seed."""
    from services.verifier.attribution import attribute

    for check in checks:
        trees = [("the reference", check.reference)] if check.reference else []
        trees += [
            (f"known-bad tree {n}" if n else "the unrepaired code", tree) for n, tree in enumerate(check.known_bad)
        ]
        for name, tree in trees:
            facts = check_run(tree, check, trial_seed)
            outcome, cause = attribute(facts)
            answered = f"{facts.answered} of {facts.wanted} calls answered"
            say(f"{check.task_id}: {name}: {outcome} ({cause}), {answered}")


def _certify(
    check_run: CheckRun, setting: Setting, checks: Sequence[CheckSet], kept: Certificates, out: Path
) -> Certificates:
    """The certificates with those of `checks` added; `out` is written after every key: an interruption loses one."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from services.verifier.certify.runner import Certifier, by_key

    screen = console(error=True)
    columns = (TextColumn("certifying"), BarColumn(), MofNCompleteColumn(), TextColumn("runs"))
    began = time.monotonic()
    with Progress(
        *columns, TimeRemainingColumn(), TextColumn("{task.description}", markup=False),
        console=screen, transient=True, disable=not screen.is_terminal,
    ) as shown:  # fmt: skip
        bar = shown.add_task("", visible=False)

        def progress(problem: str, probes: int) -> None:
            shown.update(
                bar, advance=probes, description=cell(problem, 60), visible=time.monotonic() - began > _PATIENCE_S
            )

        certifier = Certifier(check_run, setting, progress)
        keys = by_key(checks)
        planned = [certifier.planned(group) for group in keys]
        shown.update(bar, total=sum(planned))
        for number, group in enumerate(keys):
            for certificate in certifier.key(group):
                old = kept.by_task.get(certificate.task_id)
                again = old is not None and old.check_digest == certificate.check_digest
                kept = kept.updated([certificate], "certified again" if again else "the check-set changed")
            _write(out, kept)
            shown.update(bar, completed=sum(planned[: number + 1]))
    return kept


def _write(out: Path, kept: Certificates) -> None:
    beside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        beside.write_bytes(kept.document())
        beside.replace(out)
    except OSError as error:
        raise UserError(f"the certificates cannot be written: {error}", str(out), "give another --out") from error


def _report(found: Sequence[Certificate], held: int, out: Path) -> None:
    for certificate in found:
        if certificate.state != "certified":
            say(f"QUARANTINED {certificate.task_id} (version {certificate.version}): {certificate.reason}")
    pools = {certificate.pool.digest: certificate.pool for certificate in found}.values()
    for word, attribute in (("reference", "reference"), ("unrepaired", "no_op"), ("known-bad", "known_bad")):
        tallies = [getattr(certificate, attribute) for certificate in found]
        right, runs = sum(tally.right for tally in tallies), sum(tally.runs for tally in tallies)
        say(f"{word:<13} {'passed' if word == 'reference' else 'killed'} {right} of {runs} runs")
    total, killed = sum(pool.mutants.total for pool in pools), sum(pool.mutants.killed for pool in pools)
    equivalent = sum(pool.mutants.equivalent for pool in pools)
    say(f"mutants       killed {killed} of {total - equivalent} ({equivalent} more are equivalent)")
    domains = [pool.domain for pool in pools if pool.domain is not None]
    made, alike = sum(one.made for one in domains), sum(one.equivalent for one in domains)
    undecided = sum(one.undecided for one in domains)
    say(
        f"domain        killed {sum(one.killed for one in domains)} of {made - alike - undecided} domain mutants "
        f"({alike} more are equivalent, {undecided} undecided)"
    )
    forged = sum((pool.forgeries for pool in pools), Tally())
    say(f"forgeries     killed {forged.right} of {forged.runs}")
    if pools:
        bound = max(pool.flake_bound for pool in pools)
        worst = max((one.survival for one in domains), default=0.0)
        say(f"survival      at most {worst:.3%} for a killed domain mutant, through all runs of a verdict")
        say(f"flakes        at most {bound:.2%} of runs at {CONFIDENCE:.0%} confidence, every kind of check")
    certified = sum(certificate.state == "certified" for certificate in found)
    before = f", {held} of them before" if held else ""
    say(f"{certified} of {len(found)} check-sets are certified{before}: {out}")


def list_certificates(
    file: Annotated[Path | None, typer.Option("--file", help="Default: the ones shipped with the catalogue.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """List certificates: state, killed mutants and domain mutants, flake bound, and why a check-set is quarantined."""
    kept = read_file(file) if file else read(certificates.shipped(), "the shipped certificates")
    found = [kept.by_task[task_id] for task_id in sorted(kept.by_task)]
    if as_json:
        for certificate in found:
            say_json(_summary(certificate))
        return
    _print_table(found)
    for change in kept.history[-_SHOWN:]:
        say(f"replaced: {change.task_id} version {change.version} ({change.state}): {change.why}")


def _summary(certificate: Certificate) -> dict[str, Any]:
    pool = certificate.pool
    return {
        "task_id": certificate.task_id,
        "state": certificate.state,
        "reason": certificate.reason,
        "version": certificate.version,
        "check_digest": certificate.check_digest,
        "kill_rate": round(pool.mutants.kill_rate, 4),
        "mutants": pool.mutants.total,
        "equivalent": pool.mutants.equivalent,
        "domain_mutants": None if pool.domain is None else asdict(pool.domain),
        "forgeries": pool.forgeries.runs,
        "flake_bound": round(pool.flake_bound, 5),
        "confidence": CONFIDENCE,
        "own_reference_runs": certificate.reference.runs,
        "pooled_reference_runs": pool.runs.runs,
        "cpu_p99_s": pool.cpu_p99_s,
        "backend": pool.backend,
        "verifier_digest": pool.verifier_digest,
        "made_at": pool.made_at,
    }


def _domain(found: DomainMutants | None) -> str:
    if found is None:
        return "not tried"
    asked = found.made - found.equivalent - found.undecided
    return f"{found.killed} of {asked}" + (f", {found.undecided} undecided" if found.undecided else "")


def _print_table(found: Sequence[Certificate]) -> None:
    """One line per kind of check that is certified throughout, one line per check-set that is not."""
    table = grid((), (), box=None, pad_edge=False)
    for heading in ("problem", "certified", "mutants", "domain", "flakes <", "reference runs", "CPU p99"):
        table.add_column(heading, no_wrap=True)
    pools = {certificate.pool.digest: certificate.pool for certificate in found}
    for digest, pool in sorted(pools.items(), key=lambda item: item[1].problem):
        members = [certificate for certificate in found if certificate.pool.digest == digest]
        certified = sum(certificate.state == "certified" for certificate in members)
        tried = pool.mutants
        row = (
            pool.problem,
            f"{certified} of {len(members)}",
            f"{tried.killed} of {tried.total - tried.equivalent}",
            _domain(pool.domain),
            f"{pool.flake_bound:.2%}",
            ", ".join(f"{tally.runs} {load}" for load, tally in sorted(pool.reference.items(), reverse=True)),
            "not measured" if pool.cpu_p99_s is None else f"{pool.cpu_p99_s * 1000:.0f} ms",
        )
        table.add_row(*map(cell, row))
    console().print(table)
    for certificate in found:
        if certificate.state != "certified":
            say(f"QUARANTINED {certificate.task_id} (version {certificate.version}): {certificate.reason}")
    certified = sum(certificate.state == "certified" for certificate in found)
    say(f"{certified} of {len(found)} check-sets are certified; flake bounds at {CONFIDENCE:.0%} confidence")
