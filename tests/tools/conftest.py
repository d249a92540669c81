"""The command line, with a fake daemon."""

from tests.support.command_line import _elsewhere, daemon, data, ringward

__all__ = ["_elsewhere", "daemon", "data", "ringward"]  # fixtures
