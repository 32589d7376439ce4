rule evaluate:
    input:
        "builds/{build}",
    output:
        report(
            "work/evaluations/{build}.json",
            caption="captions/evaluation.rst",
            category="Evaluations",
            labels={"build": "{build}"},
        ),
    log:
        "logs/evaluate/{build}.log",
    conda:
        "../environment.yml"
    threads: answers.cores
    resources:
        **NODE,
        device=answers.device,
        gpu=answers.gpu,
        mem_mb=memory_mb(6000),
    params:
        anole=launcher,
        required=answers.required,
    shell:
        "{params.anole} evaluate {input} --output {output} {params.required} 2> {log}"
