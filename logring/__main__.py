"""Look into a ring or a log file: ``python -m logring dump|check|tail FILE``.

``dump`` shows the state, the blocks and their entries. ``check`` reads the whole log, reports damage and exits with
status 1 if it finds any. ``tail`` prints the last lines; ``tail -f`` also prints new lines.
"""

import argparse
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

from logring.errors import ForeignFile, LogError
from logring.follower import follow
from logring.layout import CONTINUED, FRAMES, KIND_RING, MAGIC, NO_NEWLINE, STATIC_SIZE, STREAM_NAMES, Static
from logring.reader import LogReader

_FLAG_NAMES = ((CONTINUED, "continued"), (NO_NEWLINE, "no_newline"), (FRAMES, "frames"))


def main(argv: list[str] | None = None) -> int:
    """Run one command. Return the exit status: 0, 1 if something is damaged, 2 if the file cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m logring", description="Inspect a ring or a log file.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("dump", "show state, blocks and entries"), ("check", "list damage")):
        commands.add_parser(name, help=text).add_argument("file")
    tail = commands.add_parser("tail", help="print the last lines")
    tail.add_argument("-n", type=int, default=10, metavar="LINES", help="number of lines (default 10)")
    tail.add_argument("-f", "--follow", action="store_true", help="follow until the log is sealed")
    tail.add_argument("file")
    args = parser.parse_args(argv)
    try:
        static = _static(args.file)
        is_ring = static.kind == KIND_RING
        reader = LogReader(args.file if is_ring else None, None if is_ring else args.file)
        try:
            if args.command == "dump":
                return _dump(reader, static)
            if args.command == "check":
                return _check(reader)
            return _tail(reader, args.n, go_on=args.follow)
        finally:
            reader.close()
    except LogError as err:
        print(err, file=sys.stderr)
        return 1
    except OSError as err:
        print(f"{args.file}: {err.strerror}", file=sys.stderr)
        return 2


def _static(path: str) -> Static:
    with open(path, "rb") as file:
        page = file.read(STATIC_SIZE)
    if not page[: len(MAGIC)].strip(b"\0"):
        raise ForeignFile(f"{path} is empty")
    return Static.parse(page, path)


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _flags(flags: int) -> str:
    return " ".join(name for flag, name in _FLAG_NAMES if flags & flag)


def _dump(reader: LogReader, static: Static) -> int:
    head = reader.head()
    print(f"{'ring' if static.kind == KIND_RING else 'file'} of {static.run_id.decode()}, pid {static.writer_pid}")
    print(f"made {_time(static.created_ms)}, blocks of {static.block_size} bytes")
    print(f"blocks in the ring: {static.ring_blocks}, in the file: {static.file_blocks}")
    print(
        f"lines {head.first_available} to {head.lines}, {head.dropped} dropped, {'sealed' if head.sealed else 'live'}"
    )
    status = 0
    for block in reader.blocks():
        if isinstance(block, LogError):
            print(f"  {block}")
            status = 1
            continue
        header = block.header
        print(
            f"  block {header.number}: lines {header.first_line} to {header.end_line}, "
            f"{len(block.text)} bytes of text, occupies {header.extent}"
        )
        for entry in block.entries():
            print(
                f"    {_time(entry.ts)} {STREAM_NAMES[entry.stream]} {entry.upto - entry.before} lines, "
                f"{entry.end - entry.start} bytes {_flags(entry.flags)}".rstrip()
            )
    for pending in reader.pending():
        print(f"  unfinished: {STREAM_NAMES[pending.stream]} {pending.text!r}")
    return status


def _problems(reader: LogReader) -> Iterator[str]:
    line = None
    for block in reader.blocks():
        if isinstance(block, LogError):
            yield str(block)
            line = None
            continue
        header = block.header
        wrong = block.contradiction()
        if wrong is not None:
            yield f"{block.where}: entry {wrong[0]}: {wrong[1]}"
        if line is not None and header.first_line < line:
            yield f"{block.where}: starts at line {header.first_line}, but the previous block ends at {line}"
        line = header.end_line


def _check(reader: LogReader) -> int:
    problems = list(_problems(reader))
    for problem in problems:
        print(problem)
    head = reader.head()
    if not head.sealed:
        print("not sealed")
    if not problems:
        print(f"lines {head.first_available} to {head.lines}: whole")
    return 1 if problems else 0


def _tail(reader: LogReader, count: int, *, go_on: bool) -> int:
    head = reader.head()
    position = max(head.first_available, head.lines - count)
    if position == head.lines and not go_on:
        return 0
    for page in follow(reader, position):
        if page.skipped:
            print(f"-- {page.skipped} lines are missing --")
        for line in page.lines:
            print(_time(line.ts), STREAM_NAMES[line.stream], line.text.decode("utf-8", "replace"))
        sys.stdout.flush()
        if page.next >= head.lines and not go_on:
            break
    return 0


if __name__ == "__main__":
    sys.exit(main())
