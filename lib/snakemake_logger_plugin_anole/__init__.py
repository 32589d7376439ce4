"""Snakemake's logger plugin `anole`, which passes the events of a workflow run to Anole's progress view.

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
"""Matches the exception of an Anole command that failed with a message. It is hidden: JOB_ERROR shows the message."""


class LogHandler(LogHandlerBase):
    """A handler that shows jobs in Anole's progress view, unless Snakemake's own output is requested."""

    _view: ProgressView | None = None
    """None if Snakemake itself writes (any of ``--dry-run``, ``--verbose``, ...), and after `close`."""

    def __post_init__(self) -> None:
        settings = self.common_settings
        if not (settings.dryrun or settings.verbose or settings.printshellcmds or settings.debug_dag):
            from anole.report.progress_view import ProgressView

            self._view = ProgressView(settings.nocolor)

    def emit(self, record: logging.LogRecord) -> None:
        """Show a record; Snakemake's filter, which handles ``--quiet``, has already removed others."""
        if self._view is None:
            return
        try:
            self._show(record, self._view)
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """Close the progress view, while Snakemake is still in the project folder."""
        if self._view is not None:
            self._view.close()
            self._view = None
        super().close()

    @property
    def writes_to_stream(self) -> bool:
        """Whether this handler, not Snakemake, writes to the terminal."""
        return self._view is not None

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

    def _show(self, record: logging.LogRecord, view: ProgressView) -> None:
        fields: dict[str, Any] = vars(record)
        match fields.get("event"):
            case LogEvent.JOB_INFO:
                job = (fields["jobid"], fields["rule_name"], list(fields["wildcards"].values()))
                view.start(*job, fields["output"], fields["log"], adds_jobs=fields["is_checkpoint"])
            case LogEvent.JOB_FINISHED:
                view.finish(fields["job_id"])
            case LogEvent.RUN_INFO:
                view.advance(0, fields["stats"]["total"])
            case LogEvent.PROGRESS:
                view.advance(fields["done"], fields["total"])
            case LogEvent.JOB_ERROR:
                view.fail(fields["jobid"], self.format(record))
            case LogEvent.ERROR if _REPORTED_FAILURE.search(str(record.msg)) and not self.common_settings.quiet:
                pass  # with --quiet, it may be the only message, because JOB_ERROR is filtered out
            case LogEvent.GROUP_ERROR | LogEvent.ERROR:
                view.tell(self.format(record), record.levelno)
            case None if not str(record.msg or "").startswith(_HIDDEN_PREFIXES):
                view.tell(self.format(record), record.levelno)
