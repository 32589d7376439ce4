rule compile:
    input:
        rule_inputs.build_files,
        manifest=rule_inputs.manifest,
        network=rule_inputs.network,
        receipts=rule_inputs.ingredients,
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
        order=rule_inputs.build_order,
    shell:
        "{params.anole} compile {wildcards.build} --order {params.order} --manifest {input.manifest} "
        "--output {output} {input.receipts} 2> {log}"
