rule merge:
    input:
        all_receipts,
        builds=expand("builds/{build}", build=pipeline.spec.builds),
        evaluations=expand("work/evaluations/{build}.json", build=pipeline.spec.builds),
    output:
        update("db/tuning.sqlite"),
    log:
        "logs/merge.log",
    conda:
        "../environment.yml"
    params:
        builds=list(pipeline.spec.builds),
    shell:
        "python -m anole merge {params.builds} --shards db/shards --database {output} 2> {log}"
