# A target that lives on nodes of a cluster is what such a node says; see `nodes` in docs/cluster.md.
checkpoint describe:
    output:
        "work/targets/{target}.json",
    log:
        "logs/describe/{target}.log",
    # Everything else waits for it.
    priority: 2
    conda:
        "../environment.yml"
    resources:
        **NODE,
        # Schedulers show a job only the GPUs that it asked for.
        gpu=answers.need("gpu"),
        mem_mb=memory_mb(1000),
    params:
        anole=launcher,
        asked=answers.asked_of_target,
    shell:
        "{params.anole} describe {wildcards.target} --asked {params.asked} --output {output} 2> {log}"
