-- Where did the tuning time go, per task and preset?
-- The search takes the rest of the elapsed time. Builds run in parallel, so their sum may exceed the elapsed time.
select
    label,
    preset,
    trials,
    failures,
    round(elapsed_s, 1) as elapsed_s,
    round(elapsed_s / trials, 3) as elapsed_s_per_trial,
    round(build_s, 1) as build_s,
    round(run_s, 1) as run_s,
    round(100.0 * elapsed_s / sum(elapsed_s) over (), 1) as percent_of_all
from tuner_summary
order by tuner_summary.elapsed_s desc;
