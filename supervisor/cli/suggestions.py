"""Suggestions for commands and options that do not exist."""

from collections.abc import Collection

import click

_CAREFUL = frozenset({"stop", "restart", "rm", "recover", "revoke", "uninstall"})
"""Commands that end or remove something: a similar spelling is no reason to suggest them."""


class SuggestingGroup(click.Group):
    """A group that suggests a command for an unknown name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command; for an unknown name, suggest its synonym in other programs, else a similar one."""
        names = self.list_commands(ctx)
        if args and args[0] not in names and not args[0].startswith("-") and not ctx.resilient_parsing:
            from supervisor.config.synonyms import ADVICE, COMMANDS, meant

            suggested = meant(args[0], names, COMMANDS) or _only_beginning(args[0], names)
            if suggested is None and (near := _similar(args[0], names)) not in _CAREFUL:
                suggested = near
            hint = f" Did you mean {suggested}?" if suggested else f" {ADVICE[args[0]]}" if args[0] in ADVICE else ""
            ctx.fail(f"No such command '{args[0]}'.{hint}")
        return super().resolve_command(ctx, args)


def with_suggestion(err: click.NoSuchOption) -> click.NoSuchOption:
    """Return the error with a suggestion: the synonym in other programs, else a similar spelling."""
    from supervisor.config.synonyms import OPTIONS, meant

    options = [] if err.ctx is None else [name for param in err.ctx.command.get_params(err.ctx) for name in param.opts]
    long = {name.removeprefix("--"): name for name in options if name.startswith("--")}
    suggested = meant(err.option_name, options, OPTIONS) or long.get(_similar(err.option_name.lstrip("-"), long) or "")
    hint = f" Did you mean {suggested}?" if suggested else ""
    return click.NoSuchOption(err.option_name, err.message + hint, ctx=err.ctx)  # click only compares the spelling


def _only_beginning(word: str, names: Collection[str]) -> str | None:
    """Return the name that `word` abbreviates; None if there is none, or several."""
    begun = [name for name in names if name.startswith(word)]
    return begun[0] if len(begun) == 1 else None


def _similar(word: str, names: Collection[str]) -> str | None:
    import difflib  # takes 5 ms, so only a typing error pays for it

    candidates = [name for name in names if name[:1] == word[:1]]  # "unpause" is not a misspelt "pause"
    return next(iter(difflib.get_close_matches(word, candidates, n=1, cutoff=0.75)), None)
