-- What changed in the row (insert, update, delete, related, joined by commas; null: unknown), and a JSON list of the changed
-- columns that a workflow asks for. Both are null in rows of earlier releases. Adding a nullable column rewrites no row.
alter table honeyflow_outbox add column if not exists change text, add column if not exists columns text;
alter table honeyflow_parked add column if not exists change text, add column if not exists columns text;
alter table honeyflow_signal add column if not exists change text, add column if not exists columns text;
