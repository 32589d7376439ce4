-- What share of each preset's trials failed, and how?
-- Units: percent of a preset's trials.
-- n: sum trials, count preset
-- Measured: each candidate was built, run, compared with a float64 reference and timed; the first failure counts.
-- Without rows: no trials are recorded yet.
select
    run.preset,
    trial.status,
    count(*) as trials,
    round(100.0 * count(*) / sum(count(*)) over (partition by run.preset), 2) as percent_of_trials
from trial
join run on run.key = trial.run_key
group by run.preset, trial.status
order by run.preset, trial.status;
