"""Run as a script: `tether.py PARENT COMMAND...` becomes COMMAND, which the kernel kills when PARENT ends.

A process that is killed with SIGKILL cannot stop the servers it has started; this makes sure that none stays
behind. Linux only (PR_SET_PDEATHSIG survives the exec). It runs in an interpreter without site packages.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    """Never returns."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:  # it ended before the line above: no signal would come
        sys.exit("the parent has ended")
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
