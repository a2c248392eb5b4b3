"""A command that runs as a fork: what ``python -m`` is to a shell, without the imports.

    python -I -S fork_client.py MODULE ARGUMENTS

The variable ``FORKS`` names the socket of the server and the modules that it imports before it forks.  Signals are
passed on, and the command ends as its fork does.  This file imports only what starts fast.
"""

import _socket
import os
import signal
import sys
from json import dumps, loads

FORKS = "SHALE_TEST_FORKS"
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """Let the server fork, and wait for the end of the fork."""
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    environment = dict(os.environ)
    server = loads(environment.pop(FORKS))
    ours, theirs = _socket.socketpair()
    stdio = b"".join(number.to_bytes(4, sys.byteorder) for number in (theirs.fileno(), 0, 1, 2))
    control = _socket.socket(fileno=server["control"])
    control.sendmsg([b"."], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, stdio)])
    theirs.close()
    start = [sys.argv[1], sys.argv[2:], environment, str(environment.get("PWD") or "."), False, server["imports"]]
    ours.sendall(dumps(start).encode() + b"\n")
    pid = _number(ours)
    for each in PASSED_ON:
        signal.signal(each, lambda number, _frame: os.kill(pid, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    code = os.waitstatus_to_exitcode(_number(ours))
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _number(line: "_socket.socket") -> int:
    got = line.recv(4, _socket.MSG_WAITALL)
    if len(got) != 4:
        sys.exit("the server of forks has gone")
    return int.from_bytes(got, sys.byteorder, signed=True)


if __name__ == "__main__":
    main()
