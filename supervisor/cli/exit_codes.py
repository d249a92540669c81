"""Exit codes of the command line: those of sysexits.h, and those of programs that run other programs."""

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
    OK: "done; for run: the run's own exit code",
    REFUSED: "refused, for example because nothing has that name; search: no line found; status, import: look at it;"
    " up: something is left",
    USAGE: "the command line is wrong",
    UNREACHABLE: "no daemon answers, or what answers is none",
    OS_ERROR: "an address cannot be bound, or too few files may be open",
    DATA_DIR: "the data directory cannot be used",
    OUTPUT: "what is printed cannot be written",
    ALREADY_RUNNING: "a daemon is running already on this data directory",
    NOT_PERMITTED: "not permitted",
    CONFIG: "the configuration is not valid",
    NEVER_RAN: "run: the task is unknown, the run never started, or nobody knows how it ended",
    INTERRUPTED: "interrupted with Ctrl-C",
    READER_GONE: "whoever read the output went away",
}
"""What each means, for the help text and the documentation."""
