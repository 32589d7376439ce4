rule refine:
    input:
        answers.build_files,
        manifest=answers.manifest,
        network=answers.network,
        receipts=answers.receipts,
    output:
        "work/refined/{build}.json",
    log:
        "logs/refine/{build}.log",
    conda:
        "../environment.yml"
    threads: answers.need("threads")
    resources:
        **NODE,
        device=answers.need("device"),
        gpu=answers.need("gpu"),
        mem_mb=memory_mb(6000),
    params:
        anole=launcher,
        order=answers.build_order,
        candidates=answers.candidates,
        required=answers.required,
    shell:
        "{params.anole} refine {wildcards.build} --order {params.order} --manifest {input.manifest} "
        "--candidates {params.candidates} {params.required} --output {output} {input.receipts} 2> {log}"
