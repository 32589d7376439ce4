rule refine:
    input:
        rule_inputs.build_files,
        manifest=rule_inputs.manifest,
        network=rule_inputs.network,
        receipts=rule_inputs.receipts,
    output:
        "work/refined/{build}.json",
    log:
        "logs/refine/{build}.log",
    conda:
        "../environment.yml"
    threads: rule_inputs.need("threads")
    resources:
        **NODE,
        device=rule_inputs.need("device"),
        gpu=rule_inputs.need("gpu"),
        mem_mb=memory_mb(6000),
    params:
        anole=launcher,
        order=rule_inputs.build_order,
        candidates=rule_inputs.candidates,
        required=rule_inputs.required_option,
    shell:
        "{params.anole} refine {wildcards.build} --order {params.order} --manifest {input.manifest} "
        "--candidates {params.candidates} {params.required} --output {output} {input.receipts} 2> {log}"
