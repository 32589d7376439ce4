-- The tables of the database and their indexes; key columns come first. Raise the version with every change: the next
-- merge then rebuilds the database, and copies records without a file from the old one.

pragma user_version = 3;

create table task (
    key text primary key,
    operator text not null,
    label text not null,
    workload text not null check (json_valid(workload)),
    target text not null check (json_valid(target)),
    template_version integer not null,
    flop integer not null
) strict;

create table space (
    task_key text primary key references task (key),
    size integer not null,
    sampled integer not null,
    rejections text not null check (json_valid(rejections))
) strict;

create table run (
    key text primary key,
    task_key text not null references task (key),
    preset text not null,
    seed integer not null,
    tuner_version integer not null,
    settings text not null check (json_valid(settings)),
    threads integer not null,
    host text not null check (json_valid(host)),
    versions text not null check (json_valid(versions)),
    started_at text not null,
    shard_bytes integer not null,
    shard_sha256 text not null,
    sealed integer not null default 0 check (sealed in (0, 1))
) strict;
create index run_task_key on run (task_key);
create index run_preset on run (preset);

create table warm_start (
    run_key text not null references run (key),
    source_run_key text not null,
    source_task_key text not null,
    trials integer not null,
    primary key (run_key, source_run_key)
) strict;

create table trial (
    run_key text not null references run (key),
    number integer not null,
    task_key text not null references task (key),
    iteration integer not null,
    config text not null check (json_valid(config)),
    status text not null,
    error text,
    latency_s real,
    latency_std_s real,
    cv real,
    repeats integer not null,
    gflops real,
    relative_error real,
    build_s real not null,
    run_s real not null,
    elapsed_s real not null,
    created_at text not null,
    primary key (run_key, number)
) strict;
create index trial_task_key on trial (task_key, latency_s);
create index trial_status on trial (status);

create table confirmation (
    run_key text not null references run (key),
    number integer not null,
    after_trials integer not null,
    rank integer not null,
    config text not null check (json_valid(config)),
    status text not null,
    error text,
    latency_s real,
    latency_std_s real,
    cv real,
    repeats integer not null,
    relative_error real,
    build_s real not null,
    run_s real not null,
    created_at text not null,
    primary key (run_key, number)
) strict;

create table iteration (
    run_key text not null references run (key),
    number integer not null,
    log text not null check (json_valid(log)),
    primary key (run_key, number)
) strict;

create table model (
    name text primary key,
    source text not null,
    inputs text not null check (json_valid(inputs))
) strict;

create table model_task (
    model text not null references model (name),
    target text not null,
    task_key text not null references task (key),
    position integer not null,
    weight integer not null,
    layers text not null check (json_valid(layers)),
    primary key (model, target, task_key)
) strict;
create index model_task_task_key on model_task (task_key);

create table build (
    name text primary key,
    model text not null references model (name),
    target text not null,
    preset text not null,
    trials integer not null,
    shared integer not null default 0 check (shared in (0, 1)),
    seed integer not null,
    tuned_flop integer not null,
    total_flop integer not null,
    coverage_flop_share real not null,
    size_bytes integer,
    manifest text not null check (json_valid(manifest)),
    created_at text not null
) strict;
create index build_model on build (model);

create table build_task (
    build text not null references build (name),
    task_key text not null references task (key),
    position integer not null,
    weight integer not null,
    matched text not null,
    reason text,
    run_key text references run (key),
    config text check (config is null or json_valid(config)),
    latency_s real,
    primary key (build, task_key)
) strict;
create index build_task_task_key on build_task (task_key);

create table refinement (
    build text not null references build (name),
    task_key text not null references task (key),
    number integer not null,
    config text not null check (json_valid(config)),
    latency_s real,
    latency_alone_s real not null,
    chosen integer not null check (chosen in (0, 1)),
    primary key (build, task_key, number)
) strict;

create table evaluation (
    build text not null references build (name),
    reference text not null,
    latency_s real not null,
    latency_std_s real,
    reference_latency_s real not null,
    reference_latency_std_s real,
    speedup real not null,
    speedup_low real,
    speedup_high real,
    rounds integer,
    precision text,
    reference_precision text,
    relative_error real not null,
    output_variation real,
    variation_error real,
    redrawn_error real,
    exact_error real,
    reference_exact_error real,
    reference_sensitivity real,
    nearby_error real,
    averaged_error real,
    averaged_draws integer,
    narrow_error real,
    rounded_error real,
    snr_db real,
    coverage_flop_share real not null,
    threads integer not null,
    host text not null check (json_valid(host)),
    versions text not null check (json_valid(versions)),
    created_at text not null,
    primary key (build, reference)
) strict;

create table size_latency (
    build text not null references build (name),
    sizes text not null check (json_valid(sizes)),
    reference text not null,
    latency_s real not null,
    reference_latency_s real not null,
    speedup real not null,
    relative_error real not null,
    rounds integer,
    created_at text not null,
    primary key (build, sizes, reference)
) strict;

create table load_latency (
    build text not null references build (name),
    neighbours integer not null check (neighbours >= 0),
    engine text not null,
    p50_s real not null,
    p95_s real not null check (p95_s >= p50_s),
    p99_s real not null check (p99_s >= p95_s),
    runs integer not null check (runs > 0),
    rounds integer not null check (rounds > 0),
    start_s real,
    created_at text not null,
    primary key (build, neighbours, engine)
) strict;

create table kernel_profile (
    build text primary key references build (name),
    whole_s real not null check (whole_s > 0),
    peak_flop_per_s real,
    peak_bytes_per_s real,
    created_at text not null
) strict;

create table kernel_latency (
    build text not null references build (name),
    number integer not null,
    kernel text not null,
    layers text not null check (json_valid(layers)),
    calls integer not null,
    flop integer not null,
    size_bytes integer not null,
    latency_s real not null check (latency_s > 0),
    peak_flop_per_s real,
    primary key (build, number)
) strict;
