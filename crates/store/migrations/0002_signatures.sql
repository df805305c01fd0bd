-- Entries of the audit log are signed with a key that is kept elsewhere: without
-- it the log cannot be made anew. Older entries have no signature.
ALTER TABLE audit ADD COLUMN key BLOB CHECK (key IS NULL OR length(key) = 32);
ALTER TABLE audit ADD COLUMN signature BLOB
    CHECK ((signature IS NULL) = (key IS NULL) AND (signature IS NULL OR length(signature) = 64));

-- One row, written now and then to see whether the store can be written.
CREATE TABLE probes (
    only  INTEGER PRIMARY KEY CHECK (only = 1),
    at    INTEGER NOT NULL
) STRICT;
INSERT INTO probes (only, at) VALUES (1, 0);
