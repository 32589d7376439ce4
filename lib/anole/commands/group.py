"""The click group of all commands: help in sections, and errors as one line each."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import Any

import click

from anole.errors import AnoleError
from anole.host import guard

_DISK_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
_FORMER_NAMES = {"quantise": "quantize"}


class Commands(click.Group):
    """A group that prints one line instead of a traceback for Anole's errors and disk errors."""

    owns_process = False
    """Whether this process only runs the command, and may therefore fork."""

    sections: Mapping[str, Sequence[click.Command]] = {}
    """The commands by section title, in the order of the help."""

    def add_sections(self, sections: Mapping[str, Sequence[click.Command]]) -> None:
        """Add the commands of all sections."""
        self.sections = sections
        for commands in sections.values():
            for command in commands:
                self.add_command(command)

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        return [*self.commands, *self._target_commands()]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Return a command of Anole or, if there is none with this name, of a kind of target."""
        name = _FORMER_NAMES.get(name, name)
        return super().get_command(context, name) or self._target_commands().get(name)

    def _target_commands(self) -> dict[str, click.Command]:
        from anole.targets import usable_kinds
        from anole.targets.base import named_object

        items = (item for kind in usable_kinds().values() for item in kind.commands.items())
        return {name: named_object(path) for name, path in items if name not in self.commands}

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        """Run the command and mark it as the owner of this process."""
        self.owns_process = True
        return super().__call__(*arguments, **settings)

    def invoke(self, context: click.Context) -> Any:
        """Run the command; an error of Anole or of the disk ends it with a one-line message and exit code 2."""
        try:
            result = super().invoke(context)
            guard.finish()
            return result
        except AnoleError as error:
            message = str(error)
        except OSError as error:
            if error.errno not in _DISK_ERRNOS:
                raise
            message = f"{error.filename or 'a file'}: cannot be read or written: {error.strerror}"
        click.echo("anole: " + "; ".join(line.strip() for line in message.splitlines() if line.strip()), err=True)
        context.exit(2)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands section by section, with aligned columns."""
        sections = {**self.sections, "Targets": self._target_commands().values()}
        width = max(len(command.name or "") for commands in sections.values() for command in commands)
        limit = formatter.width - 6 - width
        for title, commands in sections.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(f"{command.name:{width}}", command.get_short_help_str(limit)) for command in commands]
                )
