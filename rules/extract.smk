checkpoint extract:
    input:
        model_files,
    output:
        "work/models/{model}/{target}.json",
    log:
        "logs/extract/{model}-{target}.log",
    # All models first: a broken one is told of before hours of tuning, and stops them without keep-going.
    priority: 1
    conda:
        "../environment.yml"
    params:
        anole=launcher,
        entry=model_entry,
        description=target_description,
        versions=versions,
    shell:
        "{params.anole} extract {wildcards.model} --target {wildcards.target} --entry {params.entry:q} "
        "--target-description {params.description:q} --tasks work/tasks --manifest {output} 2> {log}"
