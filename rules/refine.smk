rule refine:
    input:
        build_files,
        manifest=manifest,
        receipts=receipts,
    output:
        "work/refined/{build}.json",
    log:
        "logs/refine/{build}.log",
    conda:
        "../environment.yml"
    threads: cores
    resources:
        **NODE,
        device=device,
        gpu=gpu,
        mem_mb=memory_mb(6000),
    params:
        anole=launcher,
        order=build_order,
        candidates=candidates,
        required=required,
    shell:
        "{params.anole} refine {wildcards.build} --order {params.order} --manifest {input.manifest} "
        "--candidates {params.candidates} {params.required} --output {output} {input.receipts} 2> {log}"
