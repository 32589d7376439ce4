rule evaluate:
    input:
        "builds/{build}",
    output:
        "work/evaluations/{build}.json",
    log:
        "logs/evaluate/{build}.log",
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
        required=required,
    shell:
        "{params.anole} evaluate {input} --output {output} {params.required} 2> {log}"
