"""Exit codes of the command line. They follow sysexits.h, and programs such as timeout(1) that run other programs."""

OK = 0
REFUSED = 1
USAGE = 64
UNREACHABLE = 69
OS_ERROR = 71
DATA_DIR = 73
OUTPUT = 74
ALREADY_RUNNING = 75
NOT_PERMITTED = 77
CONFIG = 78
NEVER_RAN = 125
INTERRUPTED = 130
READER_GONE = 141

MEANINGS = {
    OK: "success; run: the exit code of the run itself",
    REFUSED: "rejected, for example no such name; search: no line matches; status, import: something needs attention;"
    " up: the shutdown was incomplete",
    USAGE: "the command line is invalid",
    UNREACHABLE: "no daemon answers, or the answer is not from Ringward",
    OS_ERROR: "up: cannot bind an address, or the limit of open files is too low",
    DATA_DIR: "cannot use the data directory",
    OUTPUT: "cannot write the output",
    ALREADY_RUNNING: "a daemon already runs on this data directory",
    NOT_PERMITTED: "permission denied",
    CONFIG: "the configuration is invalid",
    NEVER_RAN: "run: no such task, the run never started, or its outcome is unknown",
    INTERRUPTED: "interrupted with Ctrl-C",
    READER_GONE: "output pipe closed",
}
"""The meaning of each code, for the help text and the documentation."""
