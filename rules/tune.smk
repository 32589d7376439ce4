rule tune:
    input:
        ancient("work/tasks/{task}.json"),
    output:
        "work/tuned/{task}/{run}/{trials}.json",
    log:
        "logs/tune/{task}/{run}/{trials}.log",
    group:
        answers.tuning_group
    conda:
        "../environment.yml"
    threads: answers.need("threads")
    resources:
        **NODE,
        device=answers.need("device"),
        gpu=answers.need("gpu"),
        mem_mb=memory_mb(3000),
    params:
        anole=launcher,
        measure=answers.need("measure"),
        tuner=answers.tuner_settings,
        seed=answers.tuner_seed,
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
        answers.tuning_group
    conda:
        "../environment.yml"
    threads: answers.need("threads")
    resources:
        **NODE,
        device=answers.need("device"),
        gpu=answers.need("gpu"),
        mem_mb=memory_mb(3000),
    params:
        anole=launcher,
        measure=answers.need("measure"),
        tuner=answers.tuner_settings,
        seed=answers.tuner_seed,
        seconds=answers.seconds,
    shell:
        "{params.anole} tune-together {input.manifest} --tuner {params.tuner} --seed {params.seed} "
        "--trials {wildcards.trials} {params.seconds} --tasks work/tasks --shards db/shards --receipts {output} "
        "--measure {params.measure:q} --builders {threads} > {log} 2>&1"
