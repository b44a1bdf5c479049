"""`kizuna completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from kizuna.cli.output import put


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script for completion in a shell.

    Keep it where the shell reads its completions, and open a new one:

    \b
    $ kizuna completion bash > ~/.local/share/bash-completion/completions/kizuna
    $ kizuna completion zsh  > "${fpath[1]}/_kizuna"
    $ kizuna completion fish > ~/.config/fish/completions/kizuna.fish

    Or, for this shell only:

    \b
    $ eval "$(kizuna completion bash)"
    """
    scripts = get_completion_class(shell)
    assert scripts is not None, shell  # noqa: S101 - click knows all three
    root = ctx.find_root()
    put(scripts(root.command, {}, "kizuna", "_KIZUNA_COMPLETE").source(), nl=False)
