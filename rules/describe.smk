# A target on a cluster's nodes is described by one of the nodes; see `nodes` in docs/cluster.md.
checkpoint describe:
    output:
        "work/targets/{target}.json",
    log:
        "logs/describe/{target}.log",
    # All other jobs wait for this one.
    priority: 2
    conda:
        "../environment.yml"
    resources:
        **NODE,
        # Schedulers show a job only the GPUs that it requested.
        gpu=rule_inputs.need("gpu"),
        mem_mb=memory_mb(1000),
    params:
        anole=launcher,
        asked=rule_inputs.requested_hardware,
    shell:
        "{params.anole} describe {wildcards.target} --asked {params.asked} --output {output} 2> {log}"
