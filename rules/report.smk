# The command refuses to replace a file that is not a report, so Snakemake must not remove it first.
rule report_page:
    input:
        "work/merged.json",
    output:
        report(
            update("report.html"),
            caption="captions/report.rst",
            category="Report",
            labels={"page": "all builds and searches"},
        ),
    log:
        "logs/report.log",
    conda:
        "../environment.yml"
    resources:
        mem_mb=memory_mb(1000),
    params:
        anole=launcher,
        spec=SPEC.name,
    shell:
        "{params.anole} report --output {output} --spec {params.spec:q} > {log} 2>&1"
