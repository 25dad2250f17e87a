"""Pictures of inputs: their bytes once for the whole file, and which input has which."""

SQL = """
CREATE TABLE images (
    image      INTEGER PRIMARY KEY,
    digest     TEXT NOT NULL UNIQUE,
    data       BLOB NOT NULL
) STRICT;

CREATE TABLE image_uses (
    use        INTEGER PRIMARY KEY,
    session    INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    run_id     TEXT NOT NULL,
    position   INTEGER NOT NULL,
    image      INTEGER NOT NULL REFERENCES images,
    media_type TEXT NOT NULL,
    UNIQUE (run_id, position)
) STRICT;
CREATE INDEX image_uses_of_session ON image_uses (session);
CREATE INDEX uses_of_image ON image_uses (image);
"""
