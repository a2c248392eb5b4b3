"""``shale plan``: capacity and cost of a load, before there is a database."""

from typing import TYPE_CHECKING, Annotated

import typer

from shale_cli.session import guarded

if TYPE_CHECKING:
    from shale_cli.capacity import Figure


def plan(
    context: typer.Context,
    *,
    rate: Annotated[str, typer.Option(metavar="BYTES", help="Written per second.")] = "1MiB",
    live: Annotated[str, typer.Option(metavar="BYTES", help="Rows that are there at a time.")] = "100GiB",
    row: Annotated[str, typer.Option(metavar="BYTES", help="Key and value of a row.")] = "116",
    gets: Annotated[float, typer.Option(metavar="N", help="Point reads per second.")] = 0.0,
    hit_ratio: Annotated[float, typer.Option(metavar="0..1", help="Share of them that caches answer.")] = 0.9,
    readers: Annotated[int, typer.Option(metavar="N", help="Reader processes.")] = 0,
    compression: Annotated[float, typer.Option(metavar="N", help="How many times smaller SSTs are.")] = 1.0,
    write_amp: Annotated[float, typer.Option(metavar="N", help="From `shale compaction simulate`.")] = 5.3,
    space_amp: Annotated[float, typer.Option(metavar="N", help="From there too.")] = 1.3,
    flush_interval: Annotated[str, typer.Option(metavar="TIME", help="The writer's setting.")] = "100ms",
    l0_size: Annotated[str, typer.Option(metavar="BYTES", help="Its l0_sst_size_bytes.")] = "64MiB",
    sst_size: Annotated[str, typer.Option(metavar="BYTES", help="The worker's max_sst_size.")] = "256MiB",
    part_size: Annotated[str, typer.Option(metavar="BYTES", help="Of uploads in parts.")] = "8MiB",
    throughput: Annotated[str, typer.Option(metavar="BYTES", help="That a job reads per second.")] = "25MiB",
    gc_age: Annotated[str, typer.Option(metavar="TIME", help="The collector's min_age and interval.")] = "15min",
    put_price: Annotated[float, typer.Option(metavar="N", help="Of a million writes.")] = 5.0,
    get_price: Annotated[float, typer.Option(metavar="N", help="Of a million reads.")] = 0.4,
    storage_price: Annotated[float, typer.Option(metavar="N", help="Of a GiB and month.")] = 0.023,
) -> None:
    """Estimate requests, storage, compaction jobs and cost of a load, with the formulas; nothing is read or written.

    The defaults are those of the daemons; the prices are an example, put in those of your store.
    """

    def work() -> int:
        from shale.engine.settings_values import parse_duration_s, parse_size
        from shale_cli.capacity import Load, figures

        load = Load(
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
            for each in figures(load)
        ]
        output.listing("figures", items, ("figure", "value", "how"))
        return 0

    raise SystemExit(guarded(context.obj, work))


def _shown(figure: "Figure") -> str:
    from shale_cli.sizes import size

    if figure.unit.startswith("bytes"):
        return size(figure.value) + figure.unit.removeprefix("bytes")
    return f"{figure.value:,.2f}{figure.unit}"
