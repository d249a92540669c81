"""``python -m tests.docs PAGE``: prints the results of the commands of a page, for its author."""

import sys
import tempfile
from pathlib import Path

from tests.docs.matching import plain
from tests.docs.pages import read_by
from tests.docs.session import Shown


def main(page: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        daemon = Shown(Path(place))
        try:
            with read_by(daemon, page) as (session, blocks):
                for block in blocks:
                    for command in block.commands():
                        output, status = session.outcome(command)
                        print(f"$ {command.text}\n{plain(output)}[{status}]", flush=True)
        finally:
            daemon.clean()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
