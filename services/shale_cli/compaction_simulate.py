"""``shale compaction simulate``: what a policy would do with a load, before a database has to find out."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shale_cli.session import Session, execute, guarded

if TYPE_CHECKING:
    from shale.compaction.simulate.result import Result
    from shale_cli.output import Output
    from shale_cli.simulated_load import LoadWishes

COLUMNS = (
    "policy",
    "write_amp",
    "space_amp",
    "space_max",
    "read_amp",
    "read_max",
    "stalled",
    "written_per_hour",
    "requests_per_hour",
    "jobs",
)


def register(app: typer.Typer) -> None:
    """Add the command to the noun."""
    app.command(
        epilog="Examples:  shale compaction simulate --rate 5MiB --overwrites 0.9 --initial-keys 50000000  |  "
        "shale compaction simulate --policy leveled --policy leveled:level_size_multiplier=10 --plot out.html  |  "
        "shale compaction simulate --from-database -u s3://bucket/db"
    )(simulate)


def simulate(
    context: typer.Context,
    *,
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[:O=V,…]", help="size_tiered, leveled, time_window; repeatable; all."),
    ] = None,
    rate: Annotated[str, typer.Option(help="Rows written per second, in bytes.")] = "1MiB",
    duration: Annotated[str, typer.Option(help="How long the load lasts.")] = "24h",
    l0_size: Annotated[str, typer.Option(help="The writer's l0_sst_size_bytes.")] = "64MiB",
    l0_max: Annotated[int, typer.Option(help="The writer's l0_max_ssts.")] = 8,
    key_bytes: Annotated[int, typer.Option(help="Size of a key.")] = 16,
    value_bytes: Annotated[int, typer.Option(help="Size of a value.")] = 100,
    keys: Annotated[str, typer.Option(help="Which keys are overwritten: uniform, zipf, sequential.")] = "uniform",
    overwrites: Annotated[float, typer.Option(help="Share of operations on existing keys.")] = 0.5,
    deletes: Annotated[float, typer.Option(help="Share of operations that delete.")] = 0.0,
    initial_keys: Annotated[int | None, typer.Option(help="Keys that are there from the start.")] = None,
    ttl: Annotated[str | None, typer.Option(help="Lifetime of rows; also time_window's default_ttl.")] = None,
    load: Annotated[
        str | None,
        typer.Option(metavar="FILE", help='Flushes as NDJSON, {"at_s": …, "bytes": …, "distinct": …}; - for stdin.'),
    ] = None,
    from_database: Annotated[
        bool, typer.Option("--from-database", help="The flushes that the retained manifests tell of.")
    ] = False,
    jobs: Annotated[int, typer.Option(help="Compactions at the same time.")] = 4,
    throughput: Annotated[str, typer.Option(help="Bytes that one of them reads per second.")] = "25MiB",
    seed: Annotated[int, typer.Option(help="The same seed gives the same figures.")] = 0,
    rows: Annotated[int, typer.Option(help="Rows to follow at most; more are slower and more exact.")] = 200_000,
    plot: Annotated[str | None, typer.Option(metavar="FILE", help="Draw series: a .png, or an .html page.")] = None,
) -> None:
    """Simulate policies side by side: write, space and read amplification, stalls, requests.  Writes no database."""
    from shale_cli.simulated_load import LoadWishes

    wishes = LoadWishes(
        rate=rate,
        duration=duration,
        l0_size=l0_size,
        key_bytes=key_bytes,
        value_bytes=value_bytes,
        initial_keys=initial_keys,
        keys=keys,
        overwrites=overwrites,
        deletes=deletes,
        ttl=ttl,
        file=load,
        seed=seed,
        rows=rows,
    )

    def compare(output: "Output", wishes: "LoadWishes") -> int:
        from shale.compaction.simulate.machine import Machine
        from shale.compaction.simulate.simulation import simulate as run_simulation
        from shale.engine.settings_values import parse_size
        from shale_cli.simulated_plot import plot_target
        from shale_cli.simulated_policy import parse_policies

        machine = Machine(jobs=jobs, throughput_bytes_s=parse_size(throughput, name="--throughput"), l0_max_ssts=l0_max)
        policies, wanted = parse_policies(policy, ttl), wishes.load()
        target = None if plot is None else plot_target(plot)
        results = [run_simulation(each.name, each.policy, wanted, machine) for each in policies]
        _show(output, results)
        if target is not None:
            target.draw(results)
            output.note(f"drawn: {target.path}")
        return 0

    async def from_manifests(session: Session) -> int:
        return compare(session.output, await wishes.with_history(session))

    options = context.obj
    if from_database:
        raise SystemExit(execute(options, from_manifests))
    raise SystemExit(guarded(options, lambda: compare(options.output, wishes)))


def _show(output: "Output", results: "Sequence[Result]") -> None:
    from shale_cli.output import Format

    make = for_people if output.format is Format.TABLE else _for_machines
    output.listing("policies", [make(result) for result in results], COLUMNS)


def for_people(result: "Result") -> Mapping[str, Any]:
    """The figures as a table has them."""
    from shale_cli.simulated_load import shown_size

    return {
        "policy": result.policy,
        "write_amp": f"{result.write_amplification:.2f}",
        "space_amp": f"{result.space_amplification:.2f}",
        "space_max": f"{result.space_amplification_max:.2f}",
        "read_amp": f"{result.read_amplification:.1f}",
        "read_max": result.read_amplification_max,
        "stalled": f"{result.stall_s / result.duration_s:.1%}",
        "written_per_hour": shown_size(result.bytes_written_per_hour),
        "requests_per_hour": round(result.requests_per_hour),
        "jobs": result.jobs,
    }


def _for_machines(result: "Result") -> Mapping[str, Any]:
    from dataclasses import fields

    data = {each.name: getattr(result, each.name) for each in fields(result) if each.name != "moments"}
    return {
        **data,
        "bytes_written_per_hour": result.bytes_written_per_hour,
        "requests_per_hour": result.requests_per_hour,
    }
