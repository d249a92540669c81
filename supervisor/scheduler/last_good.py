"""The configuration that worked last, kept for a scheduler that is restarted while the file is broken.

Somebody who edits the file must not, by a scheduler that happens to die meanwhile, lose every schedule.
"""

import os

import msgspec

from supervisor.config.load import load
from supervisor.config.model import Config
from supervisor.config.problems import ConfigError
from supervisor.logline import Log

_NAME = "config.last"


def load_or_keep(path: str, data_dir: str, *, first_epoch: bool, log: Log) -> tuple[Config, list[str]]:
    """The configuration, and warnings about it.

    A daemon that starts takes the file as it is, or does not start. A scheduler that starts again under a running
    daemon takes the copy of its predecessor's when the file cannot be used.

    Raises:
        ConfigError: the file cannot be used and there is no copy to go on with.
    """
    kept = f"{data_dir}/{_NAME}"
    try:
        config = load(path)
    except ConfigError as err:
        if first_epoch:
            raise
        try:
            with open(kept, "rb") as file:
                config = msgspec.json.decode(file.read(), type=Config)
        except (FileNotFoundError, msgspec.DecodeError):  # never written, or by another version
            raise err from None
        log.error(f"going on with the configuration of before, because the file cannot be used: {err}")
        return config, [f"the file cannot be used, the configuration of before is in force: {err}"]
    try:
        keep(config, data_dir)
    except OSError as err:  # ENOSPC: a full disk does not keep the scheduler from its work
        log.warning(f"the copy of the configuration cannot be written: {err}")
    return config, []


def keep(config: Config, data_dir: str) -> None:
    """Let `config` be the one that worked last.

    Raises:
        OSError: it cannot be written; the one of before stays.
    """
    kept = f"{data_dir}/{_NAME}"
    with open(kept + ".new", "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(msgspec.json.encode(config))
    os.replace(kept + ".new", kept)
