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
    threads: answers.need("threads")
    resources:
        **NODE,
        device=answers.need("device"),
        gpu=answers.need("gpu"),
        mem_mb=memory_mb(6000),
    params:
        anole=launcher,
        required=answers.required,
        declared=answers.declared,
    shell:
        "{params.anole} evaluate {input} --output {output} {params.required} {params.declared} 2> {log}"
