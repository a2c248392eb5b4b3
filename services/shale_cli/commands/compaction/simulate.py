"""``shale compaction simulate``: simulates compaction policies on a workload."""

from typing import TYPE_CHECKING, Annotated

import typer

from shale_cli.framework.session import CliSession, execute, run_reporting_errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shale.compaction.simulate.result import SimulationResult
    from shale_cli.commands.compaction.simulated_load import LoadOptions
    from shale_cli.framework.output.writer import Output


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
        typer.Option(metavar="NAME[:O=V,…]", help="size_tiered, leveled, time_window; repeatable; default: all."),
    ] = None,
    rate: Annotated[str, typer.Option(help="Bytes of rows written per second.")] = "1MiB",
    duration: Annotated[str, typer.Option(help="Duration of the workload.")] = "24h",
    l0_size: Annotated[str, typer.Option(help="The writer's l0_sst_size_bytes.")] = "64MiB",
    l0_max: Annotated[int, typer.Option(help="The writer's l0_max_ssts.")] = 8,
    key_bytes: Annotated[int, typer.Option(help="Size of a key.")] = 16,
    value_bytes: Annotated[int, typer.Option(help="Size of a value.")] = 100,
    keys: Annotated[str, typer.Option(help="Distribution of overwritten keys: uniform, zipf, sequential.")] = "uniform",
    overwrites: Annotated[float, typer.Option(help="Share of operations on existing keys.")] = 0.5,
    deletes: Annotated[float, typer.Option(help="Share of operations that delete.")] = 0.0,
    initial_keys: Annotated[int | None, typer.Option(help="Number of keys at the start.")] = None,
    ttl: Annotated[str | None, typer.Option(help="Lifetime of rows; also time_window's default_ttl.")] = None,
    load: Annotated[
        str | None,
        typer.Option(metavar="FILE", help='Flushes as NDJSON, {"at_s": …, "bytes": …, "distinct": …}; - for stdin.'),
    ] = None,
    from_database: Annotated[
        bool, typer.Option("--from-database", help="Use the flushes recorded in the retained manifests.")
    ] = False,
    jobs: Annotated[int, typer.Option(help="Concurrent compactions.")] = 4,
    throughput: Annotated[str, typer.Option(help="Bytes that one compaction reads per second.")] = "25MiB",
    seed: Annotated[int, typer.Option(help="Seed of the simulation; makes results repeatable.")] = 0,
    rows: Annotated[int, typer.Option(help="Limit of simulated rows; more are slower and more exact.")] = 200_000,
    plot: Annotated[
        str | None, typer.Option(metavar="FILE", help="Draw the time series into a .png or .html file.")
    ] = None,
) -> None:
    """Compare policies: write, space and read amplification, stalls, requests.  Writes to no database."""
    from shale_cli.commands.compaction.simulated_load import LoadOptions

    load_options = LoadOptions(
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

    def compare(output: "Output", load_options: "LoadOptions") -> int:
        from shale.compaction.simulate.compactor_model import CompactorModel
        from shale.compaction.simulate.simulation import simulate as run_simulation
        from shale.core.settings_values import parse_size
        from shale_cli.commands.compaction.simulated_plot import plot_target
        from shale_cli.commands.compaction.simulated_policy import parse_policies

        machine = CompactorModel(
            jobs=jobs, throughput_bytes_s=parse_size(throughput, name="--throughput"), l0_max_ssts=l0_max
        )
        policies, wanted = parse_policies(policy, ttl), load_options.load()
        target = None if plot is None else plot_target(plot)
        results = [run_simulation(each.name, each.policy, wanted, machine) for each in policies]
        _show(output, results)
        if target is not None:
            target.draw(results)
            output.note(f"drawn: {target.path}")
        return 0

    async def from_manifests(session: CliSession) -> int:
        return compare(session.output, await load_options.with_history(session))

    options = context.obj
    if from_database:
        raise SystemExit(execute(options, from_manifests))
    raise SystemExit(run_reporting_errors(options, lambda: compare(options.output, load_options)))


def _show(output: "Output", results: "Sequence[SimulationResult]") -> None:
    from shale_cli.commands.compaction.simulated_table import COLUMNS, result_json, table_row
    from shale_cli.framework.output.writer import Format

    make = table_row if output.format is Format.TABLE else result_json
    output.listing("policies", [make(result) for result in results], COLUMNS)
