-- What changed in the row (insert, update, delete, related, joined by commas; null: unknown), and a JSON list of the changed
-- columns that a workflow asks for. Both are null in rows of earlier releases.
alter table honeyflow_outbox add column change text;
alter table honeyflow_outbox add column columns text;
alter table honeyflow_parked add column change text;
alter table honeyflow_parked add column columns text;
alter table honeyflow_signal add column change text;
alter table honeyflow_signal add column columns text;
