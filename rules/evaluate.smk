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
    threads: rule_inputs.need("threads")
    resources:
        **NODE,
        device=rule_inputs.need("device"),
        gpu=rule_inputs.need("gpu"),
        mem_mb=memory_mb(6000),
    params:
        anole=launcher,
        required=rule_inputs.required_option,
        declared=rule_inputs.spec_options,
    shell:
        "{params.anole} evaluate {input} --output {output} {params.required} {params.declared} 2> {log}"
