"""The memory of the ports of a process: responses that clients have not read, and whether there is room for writes."""

from shale.concurrency.byte_budget import ByteBudget
from shale.core.memory_account import MemoryAccount, MemoryPart

_UNBOUNDED_BYTES = 1 << 60


class PortMemory:
    """The account of a process, and the budget of its responses; by default memory is never full.

    Args:
        account: of the process.
        response_bytes: memory for responses that are not sent, on all ports together.
    """

    def __init__(self, account: MemoryAccount | None = None, response_bytes: int = _UNBOUNDED_BYTES) -> None:
        self.account = MemoryAccount(_UNBOUNDED_BYTES) if account is None else account
        self.responses = ByteBudget(response_bytes)
        self.account.add_meter(MemoryPart.RESPONSES, lambda: self.responses.used_bytes)
