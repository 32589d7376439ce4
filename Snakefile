# Anole: tunes every distinct layer of the networks in models.yaml once, compiles the networks and times the builds.
#
#   snakemake --cores all              run everything that is not done yet
#   snakemake --cores all tuned        tune only; compile nothing
#   snakemake --cores all report.html  run everything, and write a report
#   anole plan                         show the jobs that would run next


from snakemake.utils import min_version

min_version("9.19")


include: "rules/common.smk"
include: "rules/resources.smk"


localrules:
    all,
    tuned,
    merge,
    report_page,


# The first rule is the default target; a workflow that imports this one as a module has its own.
rule all:
    input:
        expand("builds/{build}", build=pipeline.spec.builds),
        expand("accelerators/{accelerator}", accelerator=pipeline.spec.accelerators),
        "work/merged.json",


rule tuned:
    input:
        [rule_inputs.receipts_of(build) for build in pipeline.spec.tuned],


include: "rules/describe.smk"
include: "rules/quantize.smk"
include: "rules/extract.smk"
include: "rules/tune.smk"
include: "rules/refine.smk"
include: "rules/compile.smk"
include: "rules/evaluate.smk"
include: "rules/merge.smk"
include: "rules/report.smk"


# Rules added by kinds of targets, from their packages.
for file in RULES_OF_KINDS:

    include: file


include: "rules/left_out.smk"
