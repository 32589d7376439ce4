rule tune:
    input:
        ancient("work/tasks/{task}.json"),
    output:
        "work/tuned/{task}/{run}/{trials}.json",
    log:
        "logs/tune/{task}/{run}/{trials}.log",
    conda:
        "../environment.yml"
    threads: workflow.cores
    resources:
        device=1,
    params:
        tuner=tuner_settings,
        seed=tuner_seed,
    shell:
        "python -m anole tune {input} --tuner {params.tuner:q} --seed {params.seed} --trials {wildcards.trials} "
        "--shards db/shards --receipt {output} 2>&1 | tee {log} >&2"
