"""What the Redis port replies while the process holds as much memory as it may."""

from shale.core.memory_account import MemoryAccount
from shale.service.memory.process_memory import ProcessMemory
from tests.integration.resp.port import Port, serve


def test_writes_are_refused_and_deletes_and_reads_go_on() -> None:
    """As Redis does at ``maxmemory``."""
    account = MemoryAccount(1 << 40)

    async def scenario(port: Port) -> None:
        line = await port.connect()
        assert await line.say("SET", "a", "1") == "OK"
        account.is_full = True
        assert str(await line.say("SET", "a", "2")).startswith("OOM command not allowed")
        assert await line.say("GET", "a") == b"1"
        assert await line.say("DEL", "a") == 1
        account.is_full = False
        assert await line.say("SET", "a", "2") == "OK"
        assert account.refusals == 1

    serve(scenario, memory=ProcessMemory(account))
