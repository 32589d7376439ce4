rule accelerator:
    input:
        receipts=rule_inputs.search_receipts,
    output:
        directory("accelerators/{accelerator}"),
    log:
        "logs/accelerator/{accelerator}.log",
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory_mb(3000),
    params:
        anole=launcher,
        order=rule_inputs.accelerator_order,
    shell:
        "{params.anole} accelerator {wildcards.accelerator} --order {params.order} --output {output} "
        "{input.receipts} 2> {log}"
