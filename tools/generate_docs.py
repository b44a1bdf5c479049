"""Writes the documents that the code already holds: docs/settings.md, docs/cli.md and docs/keys.md.

python tools/generate_docs.py           write them
python tools/generate_docs.py --check   exit with 1 and name those that are not current
"""

from __future__ import annotations

import ast
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from kizuna import settings
from kizuna.cli import LazyGroup, command
from kizuna.cli.exit_codes import MEANINGS, OF_ERROR
from kizuna.configuration import variable_of
from kizuna.sections import Section, expectation, kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

DOCS = Path(__file__).parent.parent / "docs"
NOTICE = "<!-- Written by tools/generate_docs.py; change the code and run `make docs`. -->\n"
WIDTH = 100


def main(arguments: list[str]) -> int:
    stale = {name: text for name, text in pages().items() if not is_current(name, text)}
    if "--check" in arguments:
        for name in stale:
            click.echo(f"docs/{name} is not current; run `make docs`", err=True)
        return 1 if stale else 0
    for name, text in stale.items():
        (DOCS / name).write_text(text, encoding="utf-8")
        click.echo(f"docs/{name} written")
    return 0


def pages() -> dict[str, str]:
    writers: dict[str, Callable[[], str]] = {
        "settings.md": settings_page,
        "cli.md": command_page,
        "keys.md": keys_page,
    }
    return {name: f"{NOTICE}\n{write().strip()}\n" for name, write in writers.items()}


def is_current(name: str, text: str) -> bool:
    path = DOCS / name
    return path.exists() and path.read_text(encoding="utf-8") == text


# settings


SETTINGS_INTRODUCTION = """\
# Settings

Each can be set in these places; of several, the first wins:

1. in code, `load_settings({"store": {"url": "redis://db"}})`, or for one call of the command,
   `kizuna --set store.url=redis://db …`
2. in the environment, `KIZUNA_STORE__URL=redis://db`: two underscores between section and name
3. in the file that `--config` or `KIZUNA_CONFIG` names, or else in `kizuna.toml` where you are
4. in `kizuna/kizuna.toml` below `$XDG_CONFIG_HOME`, or else below `~/.config`
5. here: the default

```toml
[store]
url = "rediss://db.example:6380"
username = "kizuna"
password_file = "/run/secrets/kizuna"
```

A name that does not exist is an error that tells the nearest one that does. `kizuna settings show --origin`
shows what is in force and where it was set, `kizuna settings check` lists everything that is wrong. Secrets
are never shown. A secret and its `…_file` are one thing: in one place only one of them may be set, and the
one in the higher place counts. Relative paths start where the process runs.
"""


def settings_page() -> str:
    sections: dict[str, type[Section]] = kinds(settings.Settings)
    return "\n".join([SETTINGS_INTRODUCTION, *(section_text(name, cls) for name, cls in sections.items())])


def section_text(title: str, section: type[Section]) -> str:
    meanings = field_docstrings(section)
    rows = [
        (
            f"`{field.name}`",
            expectation(field.type),
            f"`{field.default}`" if field.default != "" else "empty",
            f"`{variable_of(f'{title}.{field.name}')}`",
            meanings[field.name],
        )
        for field in msgspec.structs.fields(section)
    ]
    table = markdown_table(("name", "takes", "default", "variable", "meaning"), rows)
    return f"## {title}\n\n{inspect.getdoc(section)}\n\n{table}"


def field_docstrings(section: type) -> dict[str, str]:
    """The text below each field, which Python itself forgets."""
    (body,) = ast.parse(inspect.getsource(section)).body
    assert isinstance(body, ast.ClassDef), body  # noqa: S101 - it is the source of a class
    following = zip(body.body, body.body[1:], strict=False)
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in following
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


# the command


COMMAND_INTRODUCTION = """\
# The kizuna command

Data goes to stdout, messages to stderr. Whatever prints data takes `--json`: one object per line. Colour
appears only on a terminal, and never when `NO_COLOR` is set. `kizuna completion --help` tells how to have the
shell complete commands, options and names.
"""


def command_page() -> str:
    root = click.Context(command, info_name="kizuna", terminal_width=WIDTH, color=False, **command.context_settings)
    return "\n".join([COMMAND_INTRODUCTION, exit_codes_text(), *help_texts(command, root)])


def exit_codes_text() -> str:
    rows = [(str(code), meaning, ", ".join(errors_with(code))) for code, meaning in MEANINGS.items()]
    return f"## Exit codes\n\n{markdown_table(('code', 'meaning', 'errors'), rows)}"


def errors_with(code: int) -> list[str]:
    return [f"`{error.__name__}`" for error, its_code in OF_ERROR.items() if its_code == code]


def help_texts(here: click.Command, ctx: click.Context) -> Iterator[str]:
    yield f"## {ctx.command_path}\n\n```text\n{here.get_help(ctx).strip()}\n```\n"
    for name, below in subcommands(here):
        yield from help_texts(below, click.Context(below, parent=ctx, info_name=name))


def subcommands(here: click.Command) -> Iterable[tuple[str, click.Command]]:
    if isinstance(here, LazyGroup):
        return [(name, here.load(name)) for name in here.commands]
    return here.commands.items() if isinstance(here, click.Group) else ()


# keys


def keys_page() -> str:
    from kizuna.catalogue import as_markdown

    return as_markdown()


def markdown_table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(header), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
