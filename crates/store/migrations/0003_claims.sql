-- Knobs that one task of one run sets at a time: fences and primaries.
CREATE TABLE claims (
    knob  TEXT    PRIMARY KEY,
    run   INTEGER NOT NULL REFERENCES runs (id),
    task  TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
