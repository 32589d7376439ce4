rule tune:
    input:
        ancient("work/tasks/{task}.json"),
    output:
        "work/tuned/{task}/{run}/{trials}.json",
    log:
        "logs/tune/{task}/{run}/{trials}.log",
    group:
        rule_inputs.tuning_group
    conda:
        "../environment.yml"
    threads: rule_inputs.need("threads")
    resources:
        **NODE,
        device=rule_inputs.need("device"),
        gpu=rule_inputs.need("gpu"),
        mem_mb=memory_mb(3000),
    params:
        anole=launcher,
        measure=rule_inputs.need("measure"),
        tuner=rule_inputs.tuner_settings,
        seed=rule_inputs.tuner_seed,
    shell:
        "{params.anole} tune {input} --tuner {params.tuner} --seed {params.seed} --trials {wildcards.trials} "
        "--shards db/shards --receipt {output} --measure {params.measure:q} --builders {threads} > {log} 2>&1"


rule tune_together:
    input:
        manifest=ancient("work/models/{model}/{target}.json"),
    output:
        "work/tuned_together/{model}/{target}/{key}/{trials}.json",
    log:
        "logs/tune_together/{model}-{target}-{key}-{trials}.log",
    group:
        rule_inputs.tuning_group
    conda:
        "../environment.yml"
    threads: rule_inputs.need("threads")
    resources:
        **NODE,
        device=rule_inputs.need("device"),
        gpu=rule_inputs.need("gpu"),
        mem_mb=memory_mb(3000),
    params:
        anole=launcher,
        measure=rule_inputs.need("measure"),
        tuner=rule_inputs.tuner_settings,
        seed=rule_inputs.tuner_seed,
        seconds=rule_inputs.seconds,
    shell:
        "{params.anole} tune-together {input.manifest} --tuner {params.tuner} --seed {params.seed} "
        "--trials {wildcards.trials} {params.seconds} --tasks work/tasks --shards db/shards --receipts {output} "
        "--measure {params.measure:q} --builders {threads} > {log} 2>&1"
