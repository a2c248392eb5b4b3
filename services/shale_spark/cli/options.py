"""Options that several commands share."""

from typing import Annotated

import typer

Master = Annotated[
    str | None, typer.Option(help="spark://host:7077, local[2], k8s://…, sc://…; default: settings, else local[*].")
]
Conf = Annotated[list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A Spark property; repeatable.")]
