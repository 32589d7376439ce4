-- Why do candidates fail, and how often for each reason?
-- The reason is the first line of the message; the 500 most frequent reasons are shown.
-- Units: trials, and percent of all trials.
-- n: sum count as failure
-- Measured: the first line of each message. The chart shows the 20 most frequent reasons.
-- Table: status, error, count, percent_of_trials, task_count, presets
-- Without rows: none: no trial has failed.
-- In short: The most frequent failure ({count} times, {percent_of_trials} % of all trials) is {status}: {error}.
select
    trial.status,
    substr(trial.error, 1, instr(trial.error || char(10), char(10)) - 1) as error,
    count(*) as count,
    round(100.0 * count(*) / (select count(*) from trial), 1) as percent_of_trials,
    count(distinct trial.task_key) as task_count,
    replace(group_concat(distinct run.preset), ',', ', ') as presets,
    min(trial.created_at) as first_at,
    -- SQLite takes these from the row of the minimum.
    task.label as example_label,
    trial.config as example_config
from trial
join run on run.key = trial.run_key
join task on task.key = trial.task_key
where trial.status <> 'ok'
group by 1, 2
order by count(*) desc, 1, 2
limit 500;
