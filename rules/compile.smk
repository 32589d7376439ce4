rule compile:
    input:
        answers.build_files,
        manifest=answers.manifest,
        network=answers.network,
        receipts=answers.ingredients,
    output:
        directory("builds/{build}"),
    log:
        "logs/compile/{build}.log",
    conda:
        "../environment.yml"
    resources:
        mem_mb=memory_mb(4000),
    params:
        anole=launcher,
        order=answers.build_order,
    shell:
        "{params.anole} compile {wildcards.build} --order {params.order} --manifest {input.manifest} "
        "--output {output} {input.receipts} 2> {log}"
