"""The `anole` command line: all commands, in the order of `anole --help`."""

from __future__ import annotations

import logging

import click

from anole.commands.bench import bench
from anole.commands.builds import compare, export, profile, run, try_
from anole.commands.group import Commands
from anole.commands.machines import calibrate, completion, doctor, serve
from anole.commands.project import init, lock, plan
from anole.commands.records import explore, export_records, import_, report
from anole.commands.stages import (
    accelerator,
    compile_,
    describe,
    evaluate,
    extract,
    merge,
    quantize,
    refine,
    tune,
    tune_together,
)
from anole.documents.log import LogFormatter
from anole.host.tempdirs import use_private_temp_folder


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="`anole COMMAND --help` explains a command and shows an example.",
)
@click.version_option(package_name="anole")
@click.pass_context
def main(context: click.Context) -> None:
    """Tune deep networks for the hardware they will run on.

    The file models.yaml lists networks, targets and builds. snakemake runs the jobs that remain; `anole plan` lists
    them.
    """
    context.with_resource(use_private_temp_folder())
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


main.add_sections(
    {
        "The project": (init, plan, lock),
        "Stages, which snakemake runs": (
            describe,
            quantize,
            extract,
            tune,
            tune_together,
            refine,
            compile_,
            evaluate,
            accelerator,
            merge,
        ),
        "Builds": (try_, run, profile, compare, export),
        "Records": (report, explore, import_, export_records),
        "Search methods": (bench,),
        "Machines": (doctor, calibrate, serve, completion),
    }
)


if __name__ == "__main__":
    main(prog_name="anole")
