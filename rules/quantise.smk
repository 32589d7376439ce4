# Only models on targets with `precision: int8` need it.
rule quantise:
    input:
        answers.own_files,
    output:
        "work/quantised/{model}.onnx",
    log:
        "logs/quantise/{model}.log",
    priority: 1
    conda:
        "../environment.yml"
    resources:
        mem_mb=memory_mb(6000),
    params:
        anole=launcher,
        entry=answers.own_entry,
        files=answers.digest,
    shell:
        "{params.anole} quantise {wildcards.model} --entry {params.entry} --output {output} 2> {log}"
