-- Runs, what happened in them, and what they leave for later ones. Times are
-- milliseconds since the beginning of 1970.

CREATE TABLE runs (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    datacenter  TEXT    NOT NULL,
    direction   TEXT    NOT NULL,
    actor       TEXT    NOT NULL,
    reason      TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    ended_at    INTEGER,
    outcome     TEXT,
    -- The number that the next record must have.
    next_seq    INTEGER NOT NULL DEFAULT 0,
    -- The newest lease on this run. Nobody holds it when there is no holder.
    epoch       INTEGER NOT NULL DEFAULT 0,
    holder      TEXT,
    held_until  INTEGER,
    CHECK ((ended_at IS NULL) = (outcome IS NULL)),
    CHECK ((holder IS NULL) = (held_until IS NULL))
) STRICT;

-- Two runs on one datacenter would undo each other's steps.
CREATE UNIQUE INDEX runs_open ON runs (datacenter) WHERE ended_at IS NULL;

-- Apart from its run, so that a list of runs does not read megabytes of plans.
CREATE TABLE plans (
    run   INTEGER PRIMARY KEY REFERENCES runs (id),
    json  TEXT NOT NULL
) STRICT;

CREATE TABLE records (
    run   INTEGER NOT NULL REFERENCES runs (id),
    seq   INTEGER NOT NULL,
    at    INTEGER NOT NULL,
    json  TEXT    NOT NULL,
    PRIMARY KEY (run, seq)
) STRICT, WITHOUT ROWID;

-- One row. Epochs are numbered over all runs, not per run: the fences made from
-- them are compared on knobs, which later runs turn again.
CREATE TABLE epochs (
    only    INTEGER PRIMARY KEY CHECK (only = 1),
    newest  INTEGER NOT NULL
) STRICT;
INSERT INTO epochs (only, newest) VALUES (1, 0);

CREATE TABLE history (
    task         TEXT    NOT NULL,
    direction    TEXT    NOT NULL,
    run          INTEGER NOT NULL REFERENCES runs (id),
    at           INTEGER NOT NULL,
    duration_ms  INTEGER NOT NULL,
    steps        INTEGER NOT NULL,
    step         REAL,
    outcome      TEXT    NOT NULL,
    PRIMARY KEY (task, direction, run)
) STRICT, WITHOUT ROWID;

-- Where knobs stood before a datacenter was drained.
CREATE TABLE originals (
    datacenter  TEXT    NOT NULL,
    knob        TEXT    NOT NULL,
    json        TEXT    NOT NULL,
    run         INTEGER NOT NULL REFERENCES runs (id),
    PRIMARY KEY (datacenter, knob)
) STRICT, WITHOUT ROWID;

-- The share of its traffic that a datacenter is without. No row: none.
CREATE TABLE drained (
    datacenter  TEXT    PRIMARY KEY,
    share       REAL    NOT NULL CHECK (share >= 0 AND share <= 1),
    run         INTEGER NOT NULL REFERENCES runs (id),
    at          INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
    seq     INTEGER PRIMARY KEY,
    at      INTEGER NOT NULL,
    actor   TEXT    NOT NULL,
    action  TEXT    NOT NULL,
    reason  TEXT    NOT NULL,
    run     INTEGER REFERENCES runs (id),
    json    TEXT    NOT NULL,
    digest  BLOB    NOT NULL CHECK (length(digest) = 32)
) STRICT;

-- These keep accidents out. Whoever means to change the log can drop them: that
-- is what the digests are for.
CREATE TRIGGER audit_grows BEFORE INSERT ON audit
WHEN NEW.seq != (SELECT coalesce(max(seq), 0) + 1 FROM audit)
BEGIN SELECT raise(ABORT, 'the audit log only grows at its end'); END;
CREATE TRIGGER audit_keeps BEFORE UPDATE ON audit
BEGIN SELECT raise(ABORT, 'the audit log only grows: entries are never changed'); END;
CREATE TRIGGER audit_never_forgets BEFORE DELETE ON audit
BEGIN SELECT raise(ABORT, 'the audit log only grows: entries are never deleted'); END;
