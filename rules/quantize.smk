# Only models on targets with `precision: int8` are quantized.
rule quantize:
    input:
        rule_inputs.own_files,
    output:
        "work/quantized/{model}.onnx",
    log:
        "logs/quantize/{model}.log",
    priority: 1
    conda:
        "../environment.yml"
    resources:
        mem_mb=memory_mb(6000),
    params:
        anole=launcher,
        entry=rule_inputs.own_entry,
        files=rule_inputs.digest,
    shell:
        "{params.anole} quantize {wildcards.model} --entry {params.entry} --output {output} 2> {log}"
