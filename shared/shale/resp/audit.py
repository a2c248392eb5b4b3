"""Commands in the audit log: those that need the role admin."""

from shale.resp.session import Handler, RespSession


def audited(name: str, handler: Handler) -> Handler:
    """Wrap the handler of a command so that it is in the audit log, however it ends."""

    async def call(session: RespSession, args: list[bytes]) -> bytes:
        audit = session.backend.audit
        record = audit.failed
        try:
            answer = await handler(session, args)
            record = audit.completed
        finally:
            record(**session.access.audit_fields(name))
        return answer

    return call
