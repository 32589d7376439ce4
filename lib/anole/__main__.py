"""The command line: all commands, in the order in which `anole --help` shows them."""

from __future__ import annotations

import logging

import click

from anole.commands.compare import compare
from anole.commands.compile import compile_
from anole.commands.completion import completion
from anole.commands.describe import describe
from anole.commands.doctor import doctor
from anole.commands.evaluate import evaluate
from anole.commands.explore import explore
from anole.commands.export import export
from anole.commands.export_records import export_records
from anole.commands.extract import extract
from anole.commands.group import Commands
from anole.commands.import_records import import_
from anole.commands.init import init
from anole.commands.lock import lock
from anole.commands.merge import merge
from anole.commands.plan import plan
from anole.commands.profile import profile
from anole.commands.refine import refine
from anole.commands.report import report
from anole.commands.run import run
from anole.commands.serve import serve
from anole.commands.tune import tune
from anole.commands.tune_together import tune_together
from anole.documents.log import LogFormatter
from anole.host.temporaries import own_temporaries


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="`anole COMMAND --help` explains a command and shows an example.",
)
@click.version_option(package_name="anole")
@click.pass_context
def main(context: click.Context) -> None:
    """Tune deep networks for the hardware they will run on.

    A file models.yaml lists networks, targets and builds; snakemake runs what is left to do, and `anole plan` shows
    what that is.
    """
    context.with_resource(own_temporaries())
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


main.add_sections(
    {
        "The project": (init, plan, lock),
        "Stages, which snakemake runs": (describe, extract, tune, tune_together, refine, compile_, evaluate, merge),
        "Builds": (run, profile, compare, export),
        "Records": (report, explore, import_, export_records),
        "Machines": (doctor, serve, completion),
    }
)


if __name__ == "__main__":
    main(prog_name="anole")
