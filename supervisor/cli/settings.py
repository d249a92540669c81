"""The options that all commands share: the configuration, the data directory and the daemon."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import click

from supervisor.cli import exit_codes
from supervisor.cli.failure import Failure
from supervisor.cli.paths import Completion, directories, files

if TYPE_CHECKING:
    from supervisor.cli.client import Api

F = TypeVar("F", bound=Callable[..., object])


@dataclass
class Settings:
    """The options that identify the daemon; None if not given."""

    config: str | None = None
    data: str | None = None
    url: str | None = None

    def override(self, option: str, value: str) -> None:
        """Set an option by name; the last value counts."""
        setattr(self, option, value)

    def api(self, token: str | None = None) -> "Api":
        """Return the daemon's API: at ``--url``, else as other options say, else at RINGWARD_URL, else on the socket.

        RINGWARD_TOKEN is sent only to RINGWARD_URL, because a run gets both together. A `token` replaces all other
        credentials. With it, the daemon does not trust the user id of a socket's peer either.

        Raises:
            Failure: the socket cannot be read from the configuration, or the URL or the token is invalid.
        """
        from supervisor.cli.client import Api, UnixEndpoint, is_token, unix_endpoint, url_endpoint

        url, password, token_of_run = self.url, os.environ.get("RINGWARD_PASSWORD"), None
        if url is None and not self.data and not self.config:
            url, token_of_run = os.environ.get("RINGWARD_URL"), os.environ.get("RINGWARD_TOKEN", "").strip()
            if token_of_run and not is_token(token_of_run):
                raise Failure("RINGWARD_TOKEN: this is not a token, which is one word", exit_codes.USAGE)
        if url:
            return Api(url_endpoint(url, password, token or token_of_run))
        if token:
            return Api(UnixEndpoint(self.socket(), authorization=f"Bearer {token}"))
        return Api(unix_endpoint(self.socket(), password))

    def socket(self) -> str:
        """Return the path of the daemon's Unix socket.

        Raises:
            Failure: the path cannot be read from the configuration.
        """
        from supervisor.config.files.lookup import find_socket

        with self._looking_for_the_daemon():
            return find_socket(self.config, self.data, os.environ)

    def data_directory(self) -> str:
        """Return the path of the data directory of a running daemon.

        Raises:
            Failure: the path cannot be read from the configuration.
        """
        from supervisor.config.files.lookup import find_data_dir

        with self._looking_for_the_daemon():
            return find_data_dir(self.config, self.data, os.environ)

    @contextmanager
    def _looking_for_the_daemon(self) -> Iterator[None]:
        from supervisor.config.problems import ConfigError

        try:
            yield
        except ConfigError as err:
            named = self.config or self.data
            hint = "" if named else "\nto reach a running daemon, name its data directory: --data DIR"
            raise Failure(f"{err}{hint}", exit_codes.CONFIG, plain=True) from err


def _option(
    attribute: str, *names: str, metavar: str, text: str, complete: Completion | None = None
) -> Callable[[F], F]:
    def remember(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> None:
        if value is not None:
            ctx.ensure_object(Settings).override(attribute, value)

    return click.option(
        *names, metavar=metavar, help=text, expose_value=False, callback=remember, shell_complete=complete
    )


CONFIG = _option("config", "-c", "--config", metavar="FILE", text="The configuration file.", complete=files)
DATA = _option("data", "--data", metavar="DIR", text="The data directory.", complete=directories)
URL = _option("url", "--url", metavar="URL", text="The daemon's address; password or token in RINGWARD_PASSWORD.")


def client_options(function: F) -> F:
    """Add the options that identify the daemon; they are accepted before and after the command's name."""
    return CONFIG(DATA(URL(function)))


pass_settings = click.make_pass_decorator(Settings, ensure=True)


@contextmanager
def config_errors() -> Iterator[None]:
    """Turn a ConfigError into a failure that lists all of its problems."""
    from supervisor.config.problems import ConfigError

    try:
        yield
    except ConfigError as err:
        raise Failure(str(err), exit_codes.CONFIG, plain=True) from err
