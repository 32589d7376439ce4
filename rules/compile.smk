rule compile:
    input:
        build_files,
        manifest=manifest,
        receipts=receipts,
    output:
        directory("builds/{build}"),
    log:
        "logs/compile/{build}.log",
    conda:
        "../environment.yml"
    params:
        build=build_settings,
    shell:
        "python -m anole compile {wildcards.build} --build {params.build:q} --manifest {input.manifest} "
        "--output {output} {input.receipts} 2> {log}"
