"""Snakemake's logger plugin `anole`: passes the events of a run to Anole's screen.

Snakemake finds it by the name of this package, and imports it whenever it starts; so this imports nothing heavy.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

if TYPE_CHECKING:
    from anole.report.progress_view import ProgressView

_BOOKKEEPING = (
    "Assuming unrestricted shared filesystem",
    "Building DAG of jobs",
    "Complete log(s):",
    "Conda environments: ignored",
    "DAG of jobs will be updated",
    "Elapsed time:",
    "Group jobs: inactive",
    "Select jobs to execute",
    "Singularity containers: ignored",
    "Updating checkpoint dependencies",
    "Using shell:",
)
"""How Snakemake's messages begin that tell a user of Anole nothing. Others are shown."""


_FAILED = re.compile(r"Command '.*' returned non-zero exit status 2\.$", re.DOTALL)
"""How the exception ends of a command that gave its reason; the error of its job has its log."""


class LogHandler(LogHandlerBase):
    """Shows a run by its layers and networks, unless Snakemake's own output is asked for."""

    _screen: ProgressView | None = None
    """None where Snakemake writes: for a dry run, ``--verbose``, ``--printshellcmds`` and ``--debug-dag``."""

    def __post_init__(self) -> None:
        settings = self.common_settings
        if not (settings.dryrun or settings.verbose or settings.printshellcmds or settings.debug_dag):
            from anole.report.progress_view import ProgressView

            self._screen = ProgressView(settings.nocolor)

    def emit(self, record: logging.LogRecord) -> None:
        """Show a record that is not filtered out, such as by ``--quiet``."""
        if self._screen is None:
            return
        try:
            self._show(record, self._screen)
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """End the screen. Snakemake is still in the project folder."""
        if self._screen is not None:
            self._screen.close()
            self._screen = None
        super().close()

    @property
    def writes_to_stream(self) -> bool:
        """Whether this writes to the terminal, so that Snakemake does not."""
        return self._screen is not None

    @property
    def writes_to_file(self) -> bool:
        """Whether this writes a file."""
        return False

    @property
    def has_filter(self) -> bool:
        """Whether Snakemake's filter is left out, which knows ``--quiet``."""
        return False

    @property
    def has_formatter(self) -> bool:
        """Whether Snakemake's formatter is left out, which shows errors with the logs of failed jobs."""
        return False

    @property
    def needs_rulegraph(self) -> bool:
        """Whether Snakemake is asked for the graph of the rules."""
        return False

    def _show(self, record: logging.LogRecord, screen: ProgressView) -> None:
        found: dict[str, Any] = vars(record)
        match found.get("event"):
            case LogEvent.JOB_INFO:
                named, files = list(found["wildcards"].values()), (found["output"], found["log"])
                screen.start(found["jobid"], found["rule_name"], named, *files, adds_jobs=found["is_checkpoint"])
            case LogEvent.JOB_FINISHED:
                screen.finish(found["job_id"])
            case LogEvent.RUN_INFO:
                screen.advance(0, found["stats"]["total"])
            case LogEvent.PROGRESS:
                screen.advance(found["done"], found["total"])
            case LogEvent.JOB_ERROR:
                screen.fail(found["jobid"], self.format(record))
            case LogEvent.ERROR if _FAILED.search(str(record.msg)) and not self.common_settings.quiet:
                pass
            case LogEvent.GROUP_ERROR | LogEvent.ERROR:
                screen.tell(self.format(record), record.levelno)
            case None if not str(record.msg or "").startswith(_BOOKKEEPING):
                screen.tell(self.format(record), record.levelno)
