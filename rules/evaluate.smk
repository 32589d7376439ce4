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
        device=device,
        gpu=gpu,
    shell:
        "python -m anole evaluate {input} --output {output} 2> {log}"
