"""Encoding of responses."""

import base64

import anyio
import anyio.lowlevel
import msgpack
import orjson
import pytest

from shale.api.responses import values_response

MIB = 1 << 20


@pytest.mark.parametrize(
    "values", [[], [None], [b"a"], [b"a", None, b""], [b"a" * MIB, None, b"", bytes(range(256)) * 300]]
)
def test_values_are_encoded_as_by_the_libraries(values: list[bytes | None]) -> None:
    packed = anyio.run(lambda: values_response(list(values), packed=True))
    assert packed.body == msgpack.packb({"values": values})
    plain = anyio.run(lambda: values_response(list(values), packed=False))
    texts = [None if value is None else base64.b64encode(value).decode() for value in values]
    assert plain.body == orjson.dumps({"values": texts})


@pytest.mark.parametrize("packed", [False, True])
def test_others_run_while_large_values_are_encoded(packed: bool) -> None:
    turns = 0

    async def scenario() -> None:
        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(others)
            await values_response([bytes(MIB)] * 8, packed=packed)
            tasks.cancel_scope.cancel()

    anyio.run(scenario)
    assert turns >= 4
