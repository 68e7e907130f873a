"""The command line: one entry for every service, every look at a run, and the laptop stack."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from services.runtime import screen
from services.runtime.errors import UserError
from services.runtime.screen import say

app = typer.Typer(
    name="rollstream",
    help="Event-driven streaming RL from verifiable rewards for code-repair agents.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_MISUSE = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""What typer raises for a command line that it refuses; the class is click's own or typer's copy of it."""
DEFAULT_RUN = Path("runs/quickstart")
RunDirOption = Annotated[
    Path | None,
    typer.Option(
        "--run-dir", help="A run's folder, live or finished. Default: runs/quickstart; in a container, its run."
    ),
]
BootstrapOption = Annotated[
    str, typer.Option("--bootstrap", help="Address of a Kafka cluster instead of a run's folder.")
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", envvar="ROLLSTREAM_CONFIG", help="The run's TOML file.", show_envvar=True)
]
TrustOption = Annotated[
    bool, typer.Option("--trust", help="Hidden tests that came with a backup may run as programs of the verifier.")
]
PlainOption = Annotated[
    str, typer.Option("--plain", help="With --grant: a listener without login, for a cluster that has no users yet.")
]


def _default_run() -> Path:
    from infra.local.deployed import default_run

    return default_run()


def _given(pairs: list[str] | None) -> dict[str, Any]:
    from services.runtime.overrides import parse_overrides

    return parse_overrides(pairs or [], lambda text: say(text, error=True))


@app.command()
def run(
    run_dir: RunDirOption = None,
    config: Annotated[Path | None, typer.Option("--config", help="The run's TOML file.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything; a new run only.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="section.key=value; may be repeated.")] = None,
    trust: TrustOption = False,
) -> None:
    """Train a repair policy on this machine: cold start, RL through topics, report, audit. Resumes a stopped run."""
    from infra.local.run import run as run_here

    overrides = _given(set_)
    if seed is not None:
        if overrides.get("seed", seed) != seed:
            say(f"--seed and --set seed differ: --seed counts, {seed}", error=True)
        overrides["seed"] = seed
    raise typer.Exit(run_here(run_dir or DEFAULT_RUN, config, overrides, trust).exit_code)


@app.command()
def up(
    service: Annotated[str, typer.Option(help="Which service this process is.")],
    config: ConfigOption = None,
    ready_file: Annotated[Path | None, typer.Option(help="Written as JSON once the service serves.")] = None,
    health_host: Annotated[
        str, typer.Option(envvar="ROLLSTREAM_HEALTH_HOST", help="Address of /healthz and /metrics; 0.0.0.0: all.")
    ] = "127.0.0.1",
    health_port: Annotated[
        int, typer.Option(envvar="ROLLSTREAM_HEALTH_PORT", help="Their port; 0 chooses a free one.")
    ] = 0,
    stay: Annotated[
        bool, typer.Option("--stay", envvar="ROLLSTREAM_STAY", help="After the run, answer health until SIGTERM.")
    ] = False,
) -> None:
    """Run one service until SIGTERM: how each is deployed alone. Waits for broker, store and preparation."""
    from services.runtime.alone import run_alone
    from services.runtime.scratch import close_all

    code = run_alone(
        service, config, ready_file=ready_file, health_host=health_host, health_port=health_port, stay=stay
    )
    # Everything was drained and committed. What is left are library threads, and waiting for those could hang or abort.
    close_all()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@app.command()
def prepare(
    config: ConfigOption = None,
    grant: Annotated[
        bool, typer.Option("--grant", help="Give each service's SCRAM user its password and exactly its rights.")
    ] = False,
    plain: PlainOption = "",
    create_buckets: Annotated[bool, typer.Option("--create-buckets", help="Create buckets that are missing.")] = False,
    bucket_policies: Annotated[
        bool,
        typer.Option(
            "--bucket-policies",
            help="Set what `rollstream buckets` prints, on a server that calls users by their access keys.",
        ),
    ] = False,
    wait_s: Annotated[
        float, typer.Option("--wait", help="Seconds to wait for broker and store.", envvar="ROLLSTREAM_PREPARE_WAIT")
    ] = 600.0,
) -> None:
    """Make what a run on a cluster begins with: topics, task set, cold start, version 0. May be repeated."""
    from infra.prepare.cluster import Options, prepare_cluster
    from services.runtime.errors import NotYet
    from services.runtime.settings import load, overruled
    from services.runtime.store import StoreUnavailable

    try:
        for line in overruled(config):
            say(f"setting {line}", error=True)
        prepare_cluster(load(config), Options(wait_s, grant, plain, create_buckets, bucket_policies))
    except (NotYet, StoreUnavailable) as e:  # a Job tries again after code 1, and not after 2
        say(f"rollstream: waited {wait_s:g} s: {e}", error=True, lines=True)
        raise typer.Exit(1) from e


@app.command()
def audit(
    folder: Annotated[Path | None, typer.Argument(help="A run's folder; --run-dir says the same.")] = None,
    run_dir: RunDirOption = None,
    bootstrap: BootstrapOption = "",
) -> None:
    """Prove from the topics alone that every requested trial has exactly one fate; exit 1 naming those that do not."""
    from infra.local.looks import audit_run

    raise typer.Exit(audit_run(run_dir or folder or _default_run(), bootstrap))


@app.command()
def tap(
    topic: Annotated[str, typer.Argument(help="Topic name, with or without .v1; or `all`.")],
    run_dir: RunDirOption = None,
    bootstrap: BootstrapOption = "",
    from_: Annotated[
        str, typer.Option("--from", help="latest, earliest, an offset, -20 (the last 20), 5m (an age), an ISO time.")
    ] = "",
    where: Annotated[list[str] | None, typer.Option(help="field=value; may be repeated.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Do not shorten lists and texts.")] = False,
    limit: Annotated[int, typer.Option(help="Stop after this many records; 0: no limit.")] = 0,
) -> None:
    """Watch a topic, decoded, one line per record: live from a running stack, or all of a finished run's."""
    from infra.local.looks import tap_run

    raise typer.Exit(tap_run(run_dir or _default_run(), bootstrap, topic, from_, where or [], json_, full, limit))


@app.command()
def trial(
    trial_id: Annotated[str, typer.Argument(help="run/NNNNNNNN/M, such as run/00000012/3.")],
    run_dir: RunDirOption = None,
    bootstrap: BootstrapOption = "",
    json_: Annotated[bool, typer.Option("--json", help="The records as JSON.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Show token ids and whole texts.")] = False,
) -> None:
    """Read one trial as a conversation: tokens, versions, tools, verdict and fate."""
    from infra.local.looks import show_trial_of

    raise typer.Exit(show_trial_of(run_dir or _default_run(), bootstrap, trial_id, json_, full))


@app.command()
def verdicts(
    run_dir: RunDirOption = None,
    bootstrap: BootstrapOption = "",
    json_: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Say how far verdicts can be trusted: unknowns, exploit findings, canaries, false accepts; exit 1 after a stop."""
    from infra.local.looks import show_verdicts

    raise typer.Exit(show_verdicts(run_dir or _default_run(), bootstrap, json_))


@app.command()
def topics(
    config: ConfigOption = None,
    create: Annotated[bool, typer.Option("--create", help="Create what is missing on kafka.bootstrap.")] = False,
    grant: Annotated[
        bool, typer.Option("--grant", help="Give each service's SCRAM user its password and exactly its rights.")
    ] = False,
    plain: PlainOption = "",
) -> None:
    """List every topic with key, partitions, writers and readers; make them and their access rules on a cluster."""
    from infra.local.looks import list_topics

    raise typer.Exit(list_topics(config, create, grant, plain))


@app.command()
def buckets(
    config: ConfigOption = None,
    principal: Annotated[
        str, typer.Option(help="What the server calls a user; {user} stands for the access key, as in an ARN.")
    ] = "{user}",
) -> None:
    """Print the bucket policies that give every service exactly its rights, hidden checks to the verifier alone."""
    from services.runtime.settings import load
    from services.runtime.store_rights import policies

    found = policies(load(config), lambda user: principal.replace("{user}", user))
    screen.say_json(found, indent=2)


@app.command()
def backup(
    place: Annotated[str, typer.Argument(help="An empty folder, or s3://bucket/prefix (ROLLSTREAM_STORE__… logs in).")],
    run_dir: RunDirOption = None,
) -> None:
    """Copy a run, live or not, into one place: topics, consumer offsets, task set, checkpoints, configuration."""
    from infra.local.backup import backup as back_up

    counts = back_up(run_dir or _default_run(), place, say)
    say(f"backed up {counts.records} records and {counts.objects} objects ({counts.bytes / 2**20:.1f} MB) to {place}")
    if counts.missing:
        say(f"{len(counts.missing)} objects that the run names were not there to copy; all else is in the backup")
        raise typer.Exit(1)


@app.command()
def restore(
    place: Annotated[str, typer.Argument(help="Where `rollstream backup` wrote to.")],
    run_dir: Annotated[Path, typer.Option("--run-dir", help="The new run's folder.")],
    config: ConfigOption = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="section.key=value; may be repeated.")] = None,
    trust: TrustOption = False,
) -> None:
    """Put a backup back as a new run folder, on its own embedded broker and local store.

    With --config: on the cluster and into the stores that this file names, where services go on with it.
    """
    from infra.local.backup import restore as put_back
    from infra.local.deployed import reached_by

    overrides = _given(set_)
    for name, section in (reached_by(config) if config else {}).items():
        overrides[name] = {**section, **overrides.get(name, {})}
    counts = put_back(place, run_dir, overrides, say, trust)
    say(f"restored {counts.records} records and {counts.objects} objects ({counts.bytes / 2**20:.1f} MB)")
    if not config:
        say(f"go on with: rollstream run --run-dir {run_dir}")


@app.command()
def recorded(
    run_dir: RunDirOption = None,
    config: ConfigOption = None,
    verify: Annotated[bool, typer.Option("--verify", help="Also read every segment and check its digest.")] = False,
    into: Annotated[Path | None, typer.Option(help="Put the records back as a new run folder: same offsets.")] = None,
) -> None:
    """List what the recorder has kept of every topic, by partition: first, last, gaps, bytes; exit 1 names the gaps."""
    from infra.local.recorded import put_back, show_recorded

    root = run_dir or _default_run()
    raise typer.Exit(put_back(root, config, into) if into else show_recorded(root, config, verify))


@app.command()
def repair(
    folder: Annotated[Path | None, typer.Argument(help="A run's folder; --run-dir says the same.")] = None,
    run_dir: RunDirOption = None,
) -> None:
    """Put back what the logs of a stopped run have lost, from its recording; exit 1 naming what nobody holds."""
    from infra.local.repair import repair as mend

    raise typer.Exit(mend(run_dir or folder or _default_run(), say))


def _mount_tasks() -> None:
    """The task commands load only when they are asked for or listed."""
    from services.tasks.commands import app as tasks_app
    from services.verifier.certify.command import add_to

    add_to(tasks_app)
    app.add_typer(tasks_app, name="tasks")


def main() -> None:
    """Entry of the console script: errors that a person can mend are one message and exit code 2.

    A reader that has gone away (`| head`) ends a command quietly with 141, as it ends other programs; an output that
    cannot be written ends it with one message and 1.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    screen.guard_streams()
    # The first process of a container gets no signal that it has not asked for.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.exit(_command())


def _command() -> int:
    try:
        if sys.argv[1:2] in ([], ["tasks"], ["--help"]):
            _mount_tasks()
        code = app(standalone_mode=False)
        screen.flush_output()
        return code if isinstance(code, int) else 0
    except screen.Unwritable as e:
        screen.drop_output()
        screen.complain(e)
        return 1
    except screen.ReaderGone:
        screen.drop_output()
        return 141
    except UserError as e:
        screen.complain(e)
        return 2
    except KeyboardInterrupt:
        return 130
    except SystemExit as e:  # a second signal, or somebody's own end
        return e.code if isinstance(e.code, int) else 1
    except typer.Abort:
        return 130
    except Exception as e:
        return _failed(e)


def _failed(e: Exception) -> int:
    """A command line that typer refuses, in the form of every other message; else a fault of ours with its trace."""
    if not isinstance(e, _MISUSE):
        say("".join(traceback.format_exception(e)), error=True, lines=True)
        return 1
    context, message = getattr(e, "ctx", None), cast(Any, e).format_message()
    if message:  # else the help was printed
        screen.complain(UserError(message, do=f"see: {context.command_path} --help" if context else None))
    return int(getattr(e, "exit_code", 2))


if __name__ == "__main__":
    main()
