"""The definitions of incoming webhooks, for the API workers that receive them.

A worker asks for the hook of each request, so a reload applies to the next one. The configuration may be readable to
the scheduler's user only; a worker learns a secret when a request names its hook.
"""

from typing import Any

from supervisor.config.model import Config
from supervisor.scheduler.control.control_socket import Operation, Reply, done


class HookOperations:
    """Answers with definitions of hooks."""

    def __init__(self, config: Config) -> None:
        self.configure(config)

    def configure(self, config: Config) -> None:
        """Apply a new configuration."""
        self._hooks = config.hooks

    def operations(self) -> dict[str, Operation]:
        """By name."""
        return {"hook": self.hook}

    def hook(self, arguments: dict[str, Any], reply: Reply) -> None:
        """Answer with the definition of a hook; None if there is none of that name."""
        hook = self._hooks.get(arguments["name"])
        if hook is None:
            reply(done(hook=None))
            return
        reply(
            done(
                hook={
                    "task": hook.task,
                    "kind": hook.kind,
                    "secret": hook.secret,
                    "events": hook.events,
                    "when": hook.when,
                    "params": hook.params,
                }
            )
        )
