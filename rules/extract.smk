checkpoint extract:
    input:
        rule_inputs.model_files,
        rule_inputs.description_file,
    output:
        manifest="work/models/{model}/{target}.json",
        network="work/models/{model}/{target}.network",
    log:
        "logs/extract/{model}-{target}.log",
    # Extract all models first, to report a broken model before hours of tuning, or to stop without keep-going.
    priority: 1
    conda:
        "../environment.yml"
    resources:
        mem_mb=memory_mb(3000),
    params:
        anole=launcher,
        entry=rule_inputs.model_entry,
        description=rule_inputs.target_description,
        versions=rule_inputs.versions,
        files=rule_inputs.digest,
    shell:
        "{params.anole} extract {wildcards.model} --target {wildcards.target} --entry {params.entry} "
        "--target-description {params.description} {params.files} --tasks work/tasks --manifest {output.manifest} 2> {log}"
