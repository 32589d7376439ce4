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
        device=device,
        gpu=gpu,
    params:
        anole=launcher,
        order=build_order,
        candidates=candidates,
    shell:
        "{params.anole} refine {wildcards.build} --order {params.order:q} --manifest {input.manifest} "
        "--candidates {params.candidates} --output {output} {input.receipts} 2> {log}"
