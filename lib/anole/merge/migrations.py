"""The tables of the database, as a sequence of migrations; new migrations are only ever appended."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from importlib import resources

from sqlite_utils import Database, Migrations

migrations = Migrations("anole")


def unknown_migrations(db: Database) -> list[str]:
    """Returns the names of the migrations that a newer Anole applied; this version must not write such a database."""
    known = known_migrations()
    return [migration.name for migration in migrations.applied(db) if migration.name not in known]


def known_migrations() -> frozenset[str]:
    """Returns the names of all migrations of this version."""
    return frozenset(migration.name for migration in migrations.pending(Database(memory=True)))


def rewrite_applied(db: Database) -> None:
    """Makes the table that lists the applied migrations anew, with the same rows.

    Its definition is that of sqlite-utils, and may differ between versions of it; so it cannot be compared to tell
    whether it is damaged.
    """
    table = db.table(migrations.migrations_table)
    if table.exists():
        rows = list(db.query(f"select migration_set, name, applied_at from {table.name} order by rowid"))
        table.drop()
        migrations.ensure_migrations_table(db)
        table.insert_all(rows)


def create_views(db: Database) -> None:
    """Creates the views of `views.sql`, in place of existing views of the same names.

    Views hold no data, so they are not part of the migrations: every merge creates those of its own version.
    """
    for statement in _statements(resources.files("anole.merge").joinpath("views.sql").read_text(encoding="utf-8")):
        for name in re.findall(r"^create view (\w+)", statement, re.MULTILINE):
            db.execute(f"drop view if exists {name}")
        db.execute(statement)


@migrations()
def tasks_runs_and_trials(db: Database) -> None:
    """Creates the tables of the shards' content."""
    _execute(
        db,
        """
        create table task (
            key text primary key,
            operator text not null,
            label text not null,
            workload text not null check (json_valid(workload)),
            target text not null check (json_valid(target)),
            template_version integer not null,
            flop integer not null
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
            shard_sha256 text not null
        ) strict;
        create index run_task_key on run (task_key);
        create index run_preset on run (preset);

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
            build_s real not null,
            run_s real not null,
            elapsed_s real not null,
            created_at text not null,
            primary key (run_key, number)
        ) strict;
        create index trial_task_key on trial (task_key, latency_s);

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
        """,
    )


@migrations()
def models(db: Database) -> None:
    """Creates the tables of the manifests' content."""
    _execute(
        db,
        """
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
        """,
    )


@migrations()
def builds_and_evaluations(db: Database) -> None:
    """Creates the tables of builds and evaluations."""
    _execute(
        db,
        """
        create table build (
            name text primary key,
            model text not null references model (name),
            target text not null,
            preset text not null,
            trials integer not null,
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

        create table evaluation (
            build text not null references build (name),
            reference text not null,
            latency_s real not null,
            latency_std_s real,
            reference_latency_s real not null,
            reference_latency_std_s real,
            speedup real not null,
            relative_error real not null,
            rounds integer,
            coverage_flop_share real not null,
            threads integer not null,
            host text not null check (json_valid(host)),
            versions text not null check (json_valid(versions)),
            created_at text not null,
            primary key (build, reference)
        ) strict;
        """,
    )


@migrations()
def warm_starts_and_shared_budgets(db: Database) -> None:
    """Adds the runs that other runs learned from, and whether a build's tasks shared one budget."""
    _execute(
        db,
        """
        create table warm_start (
            run_key text not null references run (key),
            source_run_key text not null,
            source_task_key text not null,
            trials integer not null,
            primary key (run_key, source_run_key)
        ) strict;

        alter table build add column shared integer not null default 0 check (shared in (0, 1));
        """,
    )


@migrations()
def signal_to_noise(db: Database) -> None:
    """Adds the signal-to-noise ratio of an integer build against its network, in decibels."""
    _execute(db, "alter table evaluation add column snr_db real;")


@migrations()
def spaces(db: Database) -> None:
    """Adds the sizes of the tasks' spaces, and the shares that constraints reject."""
    _execute(
        db,
        """
        create table space (
            task_key text primary key references task (key),
            size integer not null,
            sampled integer not null,
            rejections text not null check (json_valid(rejections))
        ) strict;
        """,
    )


@migrations()
def relative_errors(db: Database) -> None:
    """Adds the relative errors of the candidates' results."""
    _execute(
        db,
        """
        alter table trial add column relative_error real;
        alter table confirmation add column relative_error real;
        """,
    )


@migrations()
def refinements(db: Database) -> None:
    """Adds the latencies of candidates within the network of a build."""
    _execute(
        db,
        """
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
        """,
    )


@migrations()
def checksums(db: Database) -> None:
    """Adds the checksums of what the database holds, and whether the lines of a run's shard have any."""
    _execute(
        db,
        """
        alter table run add column sealed integer not null default 0 check (sealed in (0, 1));

        create table checksum (
            kind text not null,
            key text not null,
            sha256 text not null,
            primary key (kind, key)
        ) strict;
        """,
    )


@migrations()
def output_variations(db: Database) -> None:
    """Adds how much a network's outputs depend on its input, and the build's error relative to that."""
    _execute(
        db,
        """
        alter table evaluation add column output_variation real;
        alter table evaluation add column variation_error real;
        alter table evaluation add column redrawn_error real;
        """,
    )


@migrations()
def exact_errors(db: Database) -> None:
    """Adds how far a build is from its network in double precision."""
    _execute(db, "alter table evaluation add column exact_error real;")


@migrations()
def exact_errors_of_references(db: Database) -> None:
    """Adds how far the most exact reference in single precision is from the network in double precision."""
    _execute(db, "alter table evaluation add column reference_exact_error real;")


@migrations()
def averaged_errors(db: Database) -> None:
    """Adds how much a reference's outputs depend on rounding, and how far a build's are from them on average."""
    for column in ("reference_sensitivity real", "nearby_error real", "averaged_error real", "averaged_draws integer"):
        _execute(db, f"alter table evaluation add column {column};")


@migrations()
def load_latencies(db: Database) -> None:
    """Adds the latencies of builds and references beside busy processes."""
    _execute(
        db,
        """
        create table load_latency (
            build text not null references build (name),
            neighbours integer not null check (neighbours >= 0),
            engine text not null,
            p50_s real not null,
            p95_s real not null check (p95_s >= p50_s),
            p99_s real not null check (p99_s >= p95_s),
            runs integer not null check (runs > 0),
            rounds integer not null check (rounds > 0),
            created_at text not null,
            primary key (build, neighbours, engine)
        ) strict;
        """,
    )


@migrations()
def trials_by_status(db: Database) -> None:
    """Adds an index by which trials are counted by their status, and failures are found."""
    _execute(db, "create index trial_status on trial (status);")


@migrations()
def kernel_latencies(db: Database) -> None:
    """Adds the times of the kernels within each build, and how long an engine takes to start."""
    _execute(
        db,
        """
        alter table load_latency add column start_s real;

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
            primary key (build, number)
        ) strict;
        """,
    )


@migrations()
def speedup_quartiles(db: Database) -> None:
    """Adds the quartiles of the rounds' speedups."""
    for column in ("speedup_low real", "speedup_high real"):
        _execute(db, f"alter table evaluation add column {column};")


def _execute(db: Database, script: str) -> None:
    """Runs statements within the current transaction; sqlite3's `executescript` would commit it."""
    for statement in _statements(script):
        db.execute(statement)


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement.strip()
            statement = ""
