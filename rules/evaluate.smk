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
        mem_mb=memory_mb(4000),
    params:
        required=required,
    shell:
        "python -m anole evaluate {input} --output {output} {params.required} 2> {log}"
