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
    threads: build_cores
    resources:
        device=build_device,
        gpu=build_gpu,
    params:
        order=build_order,
        candidates=candidates,
    shell:
        "python -m anole refine {wildcards.build} --order {params.order:q} --manifest {input.manifest} "
        "--candidates {params.candidates} --output {output} {input.receipts} 2> {log}"
