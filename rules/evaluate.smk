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
    params:
        anole=launcher,
    shell:
        "{params.anole} evaluate {input} --output {output} 2> {log}"
