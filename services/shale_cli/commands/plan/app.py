"""``shale plan``: estimates the capacity and cost of a workload without a database."""

from typing import TYPE_CHECKING, Annotated

import typer

from shale_cli.framework.session import run_reporting_errors

if TYPE_CHECKING:
    from shale_cli.commands.plan.capacity import Estimate


def plan(
    context: typer.Context,
    *,
    rate: Annotated[str, typer.Option(metavar="BYTES", help="Bytes written per second.")] = "1MiB",
    live: Annotated[str, typer.Option(metavar="BYTES", help="Bytes of live rows.")] = "100GiB",
    row: Annotated[str, typer.Option(metavar="BYTES", help="Bytes of key and value of a row.")] = "116",
    gets: Annotated[float, typer.Option(metavar="N", help="Point reads per second.")] = 0.0,
    hit_ratio: Annotated[float, typer.Option(metavar="0..1", help="Share of reads served by caches.")] = 0.9,
    readers: Annotated[int, typer.Option(metavar="N", help="Reader processes.")] = 0,
    compression: Annotated[float, typer.Option(metavar="N", help="Compression ratio of SSTs.")] = 1.0,
    write_amp: Annotated[
        float, typer.Option(metavar="N", help="Write amplification, from `shale compaction simulate`.")
    ] = 5.3,
    space_amp: Annotated[float, typer.Option(metavar="N", help="Space amplification, from the same command.")] = 1.3,
    flush_interval: Annotated[str, typer.Option(metavar="TIME", help="The writer's flush_interval.")] = "100ms",
    l0_size: Annotated[str, typer.Option(metavar="BYTES", help="The writer's l0_sst_size_bytes.")] = "64MiB",
    sst_size: Annotated[str, typer.Option(metavar="BYTES", help="The worker's max_sst_size.")] = "256MiB",
    part_size: Annotated[str, typer.Option(metavar="BYTES", help="Bytes of one part of a multipart upload.")] = "8MiB",
    throughput: Annotated[
        str, typer.Option(metavar="BYTES", help="Bytes that a compaction job reads per second.")
    ] = "25MiB",
    gc_age: Annotated[str, typer.Option(metavar="TIME", help="Sum of the gc's min_age and interval.")] = "15min",
    put_price: Annotated[float, typer.Option(metavar="N", help="Price of a million write requests.")] = 5.0,
    get_price: Annotated[float, typer.Option(metavar="N", help="Price of a million read requests.")] = 0.4,
    storage_price: Annotated[float, typer.Option(metavar="N", help="Price of a GiB per month.")] = 0.023,
) -> None:
    """Estimate requests, storage, compaction jobs and cost of a workload, with formulas; nothing is read or written.

    The defaults are those of the daemons.  The prices are an example: use those of your store.
    """

    def work() -> int:
        from shale.core.settings_values import parse_duration_s, parse_size
        from shale_cli.commands.plan.capacity import CapacityWorkload, estimates

        load = CapacityWorkload(
            rate=parse_size(rate, name="--rate"),
            live=parse_size(live, name="--live"),
            row=parse_size(row, name="--row"),
            gets=gets,
            hit_ratio=hit_ratio,
            flush_interval=parse_duration_s(flush_interval, name="--flush-interval"),
            l0_size=parse_size(l0_size, name="--l0-size"),
            part_size=parse_size(part_size, name="--part-size"),
            sst_size=parse_size(sst_size, name="--sst-size"),
            compression=compression,
            write_amp=write_amp,
            space_amp=space_amp,
            throughput=parse_size(throughput, name="--throughput"),
            readers=readers,
            gc_age=parse_duration_s(gc_age, name="--gc-age"),
            put_price=put_price,
            get_price=get_price,
            storage_price=storage_price,
        )
        output = context.obj.output
        items = [
            {
                "figure": each.name,
                "value": _shown(each) if output.is_table else round(each.value, 6),
                "unit": each.unit,
                "how": each.how,
            }
            for each in estimates(load)
        ]
        output.listing("figures", items, ("figure", "value", "how"))
        return 0

    raise SystemExit(run_reporting_errors(context.obj, work))


def _shown(figure: "Estimate") -> str:
    from shale.core.units import format_size

    if figure.unit.startswith("bytes"):
        return format_size(figure.value) + figure.unit.removeprefix("bytes")
    return f"{figure.value:,.2f}{figure.unit}"
