"""What a harness did: what is known of a plan, a command, a call or a change besides its text."""

SQL = """
-- A JSON object; NULL for what was said.
ALTER TABLE items ADD COLUMN about TEXT;
"""
