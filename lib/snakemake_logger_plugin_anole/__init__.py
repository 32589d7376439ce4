"""Snakemake's logger plugin `anole`, which passes the events of a run to Anole's progress view.

Snakemake finds this package by its name and imports it at every start, so the package imports nothing heavy.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

if TYPE_CHECKING:
    from anole.report.progress_view import ProgressView

_HIDDEN_PREFIXES = (
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
"""The prefixes of Snakemake's messages that are hidden because they are irrelevant to users of Anole."""


_REPORTED_FAILURE = re.compile(r"Command '.*' returned non-zero exit status 2\.$", re.DOTALL)
"""The exception of a command that printed its error; the job's error shows that error with the log."""


class LogHandler(LogHandlerBase):
    """A handler that shows a run by its layers and networks, unless Snakemake's own output is requested."""

    _screen: ProgressView | None = None
    """None if Snakemake itself writes: for a dry run, ``--verbose``, ``--printshellcmds`` and ``--debug-dag``."""

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
        """Close the progress view, while Snakemake is still in the project folder."""
        if self._screen is not None:
            self._screen.close()
            self._screen = None
        super().close()

    @property
    def writes_to_stream(self) -> bool:
        """Whether this handler, not Snakemake, writes to the terminal."""
        return self._screen is not None

    @property
    def writes_to_file(self) -> bool:
        """False: this handler writes no file."""
        return False

    @property
    def has_filter(self) -> bool:
        """False: use Snakemake's filter, which handles ``--quiet``."""
        return False

    @property
    def has_formatter(self) -> bool:
        """False: use Snakemake's formatter, which shows errors with the logs of failed jobs."""
        return False

    @property
    def needs_rulegraph(self) -> bool:
        """False: the graph of the rules is not needed."""
        return False

    def _show(self, record: logging.LogRecord, screen: ProgressView) -> None:
        fields: dict[str, Any] = vars(record)
        match fields.get("event"):
            case LogEvent.JOB_INFO:
                wildcards, files = list(fields["wildcards"].values()), (fields["output"], fields["log"])
                screen.start(fields["jobid"], fields["rule_name"], wildcards, *files, adds_jobs=fields["is_checkpoint"])
            case LogEvent.JOB_FINISHED:
                screen.finish(fields["job_id"])
            case LogEvent.RUN_INFO:
                screen.advance(0, fields["stats"]["total"])
            case LogEvent.PROGRESS:
                screen.advance(fields["done"], fields["total"])
            case LogEvent.JOB_ERROR:
                screen.fail(fields["jobid"], self.format(record))
            case LogEvent.ERROR if _REPORTED_FAILURE.search(str(record.msg)) and not self.common_settings.quiet:
                pass
            case LogEvent.GROUP_ERROR | LogEvent.ERROR:
                screen.tell(self.format(record), record.levelno)
            case None if not str(record.msg or "").startswith(_HIDDEN_PREFIXES):
                screen.tell(self.format(record), record.levelno)
