-- Fences that runs left closed when they ended, until they are read open.
CREATE TABLE fences (
    knob  TEXT    PRIMARY KEY,
    run   INTEGER NOT NULL REFERENCES runs (id),
    json  TEXT    NOT NULL,
    at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
