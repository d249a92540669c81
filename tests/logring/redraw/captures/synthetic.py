"""Write the captures of programs that could not be run.

Usage: ``python -m tests.logring.redraw.captures.synthetic DIRECTORY``.

They imitate the output of Docker's client on a terminal and are not recorded. ``docker pull`` gives each layer a row
by a newline; to change a row, it moves up, erases it, writes it and moves down. ``docker compose`` moves up over all
its rows and rewrites each of them while the cursor is hidden.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

LAYERS = ["a2318d6c47ec", "095d327c79ae", "bbfaa25db775"]
SERVICES = ["network app_default", "container app-db-1", "container app-web-1"]


def pull() -> Iterator[str]:
    yield "Using default tag: latest\nlatest: Pulling from library/example\n"
    rows = 0

    def change(row: int, status: str) -> str:
        up = rows - row
        return f"\x1b[{up}A\x1b[2K\r{LAYERS[row]}: {status}\r\x1b[{up}B"

    for row in range(len(LAYERS)):
        rows += 1
        yield "\n" + change(row, "Pulling fs layer ")
    for step in range(11):
        for row in range(len(LAYERS)):
            done = min(50, step * (5 + row))
            bar = "[" + ("=" * done + ">").ljust(51)[:50] + "]"
            if done < 50:
                yield change(row, f"Downloading {bar}  {done / 10:.1f}MB/5.0MB")
            elif step % 2:
                yield change(row, "Verifying Checksum ")
            else:
                yield change(row, "Download complete ")
    for row in range(len(LAYERS)):
        yield change(row, "Extracting  [" + "=" * 49 + ">]  5.0MB/5.0MB")
        yield change(row, "Pull complete ")
    yield "Digest: sha256:" + "0123456789abcdef" * 4 + "\nStatus: Downloaded newer image for example:latest\n"
    yield "docker.io/library/example:latest\n"


def compose() -> Iterator[str]:
    marks = "⠋⠙⠹⠸⠼⠴⠦⠧"
    for frame in range(16):
        rows = []
        spin = marks[frame % len(marks)]
        for number, name in enumerate(SERVICES[: 1 + min(frame, 2)]):
            since = (frame - number) / 10
            done = since >= 0.8 or frame == 15
            mark = (
                f"\x1b[32m✔\x1b[0m {name:<30}\x1b[32mStarted " if done else f"\x1b[33m{spin}\x1b[0m {name:<30}Creating"
            )
            rows.append(f" {mark}\x1b[0m  \x1b[34m{since:.1f}s\x1b[0m ")
        up = "" if not frame else f"\x1b[{2 + min(frame - 1, 2)}A"
        finished = sum("✔" in row for row in rows)
        yield (
            f"\x1b[?25l{up}\x1b[0G[+] Running {finished}/{len(rows)}\n"
            + "".join(f"{row}\n" for row in rows)
            + "\x1b[?25h"
        )


def main() -> None:
    directory = Path(sys.argv[1])
    (directory / "docker-pull.tty").write_text("".join(pull()))
    (directory / "docker-compose.tty").write_text("".join(compose()))


if __name__ == "__main__":
    main()
