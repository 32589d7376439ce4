# Snakemake removes, restores and backs up the outputs of rules. Therefore, the output is not the database but a stamp,
# which is invalid without the database.
if not layout.DATABASE.exists():
    layout.MERGED.unlink(missing_ok=True)


rule merge:
    input:
        builds=expand("builds/{build}", build=pipeline.spec.builds),
        evaluations=expand("work/evaluations/{build}.json", build=pipeline.spec.builds),
        accelerators=expand(
            "accelerators/{accelerator}", accelerator=pipeline.spec.accelerators
        ),
    output:
        "work/merged.json",
    log:
        "logs/merge.log",
    conda:
        "../environment.yml"
    resources:
        mem_mb=memory_mb(2000),
    params:
        anole=launcher,
        builds=list(pipeline.spec.builds),
    shell:
        "{params.anole} merge {params.builds} --shards db/shards --database db/tuning.sqlite "
        "--stamp {output} 2> {log}"
