"""Suggestions for commands and options that do not exist."""

import click


class SuggestingGroup(click.Group):
    """A group that suggests a command for an unknown name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command; for an unknown name, suggest its synonym in other programs, else a similar one."""
        names = self.list_commands(ctx)
        if args and args[0] not in names and not args[0].startswith("-") and not ctx.resilient_parsing:
            import difflib  # takes 5 ms, so only a typing error pays for it

            from supervisor.config.synonyms import COMMANDS, meant

            synonym = meant(args[0], names, COMMANDS)
            near = [synonym] if synonym else difflib.get_close_matches(args[0], names, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            ctx.fail(f"No such command '{args[0]}'.{hint}")
        return super().resolve_command(ctx, args)


def with_suggestion(err: click.NoSuchOption) -> click.NoSuchOption:
    """Return the error with a suggestion: the synonym in other programs, else a similar spelling."""
    import difflib

    from supervisor.config.synonyms import OPTIONS, meant

    options = [] if err.ctx is None else [name for param in err.ctx.command.get_params(err.ctx) for name in param.opts]
    long = {name.lstrip("-"): name for name in options if name.startswith("--")}
    synonym = meant(err.option_name, options, OPTIONS)
    near = difflib.get_close_matches(err.option_name.lstrip("-"), long, n=1, cutoff=0.7)
    suggested = synonym or next((long[name] for name in near), None)
    hint = f" Did you mean {suggested}?" if suggested else ""
    return click.NoSuchOption(err.option_name, err.message + hint, ctx=err.ctx)  # click only compares the spelling
