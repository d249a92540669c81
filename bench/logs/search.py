"""Speed of a log search, side by side with GNU grep and ripgrep on the same lines: `python -m bench.logs.search`.

It writes a log of many lines (`--lines`, 10,000,000) and a text file with the same lines. Then it searches both in
turn, `--rounds` times, with both files in the page cache; figures are medians. Ringward is
:func:`logring.log_search.search` in the slices of the API, with all checks of the blocks. The others count matches,
including their start: grep in the C locale, and ripgrep, if installed, on one core. The bar is for a regular expression
without a match. A ratio says how many times faster the others are.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

from logring.layout import STDOUT, RingShape
from logring.log_search import Pattern, SearchLimits, search
from logring.logfile.log_file import LogFileWriter
from logring.reader import LogReader
from logring.ring.writer import RingWriter

SHARED_MEMORY = "/dev/shm"
BAR_MB_S = 500
LIMIT = 1000
SLICE = 1 << 20
FILE_BLOCKS = 1 << 15


@dataclass(frozen=True)
class Case:
    """The patterns of the search."""

    what: str
    text: str
    regex: bool = True
    ignore_case: bool = False
    bar: bool = False

    def grep(self) -> list[str]:
        return ["grep", "-c", "-E" if self.regex else "-F", *(["-i"] if self.ignore_case else []), "--", self.text]

    def rg(self) -> list[str]:
        options = [*([] if self.regex else ["-F"]), *(["-i"] if self.ignore_case else [])]
        return ["rg", "--no-config", "--threads", "1", "--count", "--include-zero", *options, "--", self.text]


CASES = (
    Case("expression, no match", "[a-z]+ing [0-9]+", bar=True),
    Case("alternatives, no match", "panic|fatal|refused", bar=True),
    Case("at the start, no match", "^[0-9]+ (GET|POST)", bar=True),
    Case("any case, no match", "time-?out", ignore_case=True, bar=True),
    Case("two wildcards, no match", "job.*took.*hours", bar=True),
    Case("plain, no match", "connection refused", regex=False),
    Case("plain, any case, no match", "Connection Refused", regex=False, ignore_case=True),
    Case("plain, last line", "job 9999999 ", regex=False),
    Case("1 of 1,000 lines", "job [0-9]*777 "),
    Case("1 of 10 lines, all of them", "job [0-9]*7 "),
)


def make(directory: str, shared: str, lines: int) -> tuple[str, str]:
    """Create the text file and the log file; return their paths."""
    plain, path = f"{directory}/plain", f"{directory}/run.log"
    writer = RingWriter.new(f"{shared}/run.ring", "BENCH", RingShape(FILE_BLOCKS))
    log = LogFileWriter(path, writer, FILE_BLOCKS)
    with open(plain, "wb") as out:
        for first in range(0, lines, 1000):
            numbers = range(first, min(first + 1000, lines))
            data = b"".join(b"worker %d: job %d done, took %d ms\n" % (n % 16, n, n * 7919 % 5000) for n in numbers)
            out.write(data)
            writer.append(STDOUT, data, 1_700_000_000_000 + first // 100)
            while not writer.complete_waiting():
                log.write_closed()
            log.write_closed()
    writer.seal(1_800_000_000_000)
    log.finish()
    writer.close()
    return plain, path


def ours(path: str, case: Case) -> tuple[float, int]:
    """Search the log; return the seconds and the number of matches."""
    start_s = time.perf_counter()
    reader = LogReader(None, path)
    pattern = Pattern(case.text, regex=case.regex, ignore_case=case.ignore_case)
    hits = line = 0
    while True:
        found = search(reader, pattern, line, limits=SearchLimits(LIMIT, SLICE))
        assert not found.damaged
        hits += len(found.hits)
        line = found.next
        if found.exhausted:
            break
    reader.close()
    return time.perf_counter() - start_s, hits


def by(command: list[str], path: str) -> tuple[float, int]:
    """Search the text file with another program; return the same."""
    start_s = time.perf_counter()
    done = subprocess.run([*command, path], env={**os.environ, "LC_ALL": "C"}, stdout=subprocess.PIPE, check=False)
    return time.perf_counter() - start_s, int(done.stdout)


def main() -> int:
    """Return 0, even if a bar is missed, or 1 if the results differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", default="/var/tmp")
    args = parser.parse_args()
    if shutil.which("grep") is None:
        parser.error("there is no grep to compare with")
    with (
        tempfile.TemporaryDirectory(dir=args.dir) as disk,
        tempfile.TemporaryDirectory(dir=SHARED_MEMORY) as shared,
    ):
        plain, log = make(disk, shared, args.lines)
        size = os.path.getsize(plain)
        print(f"{args.lines:,} lines, {size / 1e6:.0f} MB, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
        has_rg = shutil.which("rg") is not None
        names = ("grep MB/s", "grep/ours", "rg MB/s", "rg/ours")
        print(f"{'what':<28}{'hits':>10}{'ours MB/s':>11}{''.join(f'{name:>11}' for name in names)}{'bar MB/s':>12}")
        for case in CASES:
            rounds = [
                (ours(log, case), by(case.grep(), plain), *([by(case.rg(), plain)] if has_rg else []))
                for _ in range(args.rounds)
            ]
            if len({hits for each in rounds for _, hits in each}) != 1:
                print(f"{case.what}: {[hits for _, hits in rounds[0]]} hits (ours, grep, rg)", file=sys.stderr)
                return 1
            mine, *others = (statistics.median(each[side][0] for each in rounds) for side in range(len(rounds[0])))
            columns = "".join(f"{size / other / 1e6:>11.0f}{mine / other:>10.2f}x" for other in others)
            columns += "" if has_rg else f"{'not installed':>22}"
            bar = f"{BAR_MB_S} {'ok' if size / mine / 1e6 >= BAR_MB_S else 'MISSED'}" if case.bar else ""
            print(f"{case.what:<28}{rounds[0][0][1]:>10}{size / mine / 1e6:>11.0f}{columns}{bar:>12}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
