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
    threads: cores
    resources:
        device=device,
        gpu=gpu,
    shell:
        "python -m anole evaluate {input} --output {output} 2> {log}"
