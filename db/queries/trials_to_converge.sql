-- After how many trials did each run reach 90, 95 and 99 % of its best speed, and after how many seconds 95 %?
with final as (
    select run_key, max(gflops) as gflops from trial group by run_key
)
select
    curve.label,
    curve.preset,
    curve.seed,
    round(final.gflops, 1) as best_gflops,
    min(curve.number + 1) filter (where curve.best_gflops >= 0.90 * final.gflops) as trials_to_90,
    min(curve.number + 1) filter (where curve.best_gflops >= 0.95 * final.gflops) as trials_to_95,
    min(curve.number + 1) filter (where curve.best_gflops >= 0.99 * final.gflops) as trials_to_99,
    min(curve.elapsed_s) filter (where curve.best_gflops >= 0.95 * final.gflops) as elapsed_s_to_95
from tuning_curve as curve
join final on final.run_key = curve.run_key
group by curve.run_key
order by curve.label, curve.preset, curve.seed;
