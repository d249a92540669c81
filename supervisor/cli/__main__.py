"""``python -m supervisor.cli``: the command line, for callers that know an interpreter and no installed script."""

from supervisor.cli.entry import main

if __name__ == "__main__":
    main()
