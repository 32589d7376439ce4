checkpoint extract:
    input:
        answers.model_files,
        answers.description_file,
    output:
        manifest="work/models/{model}/{target}.json",
        network="work/models/{model}/{target}.network",
    log:
        "logs/extract/{model}-{target}.log",
    # All models first: a broken one is told of before hours of tuning, and stops them without keep-going.
    priority: 1
    conda:
        "../environment.yml"
    resources:
        mem_mb=memory_mb(3000),
    params:
        anole=launcher,
        entry=answers.model_entry,
        description=answers.target_description,
        versions=answers.versions,
        files=answers.digest,
    shell:
        "{params.anole} extract {wildcards.model} --target {wildcards.target} --entry {params.entry} "
        "--target-description {params.description} {params.files} --tasks work/tasks --manifest {output.manifest} 2> {log}"
