create table honeyflow_meta (
  name  text collate "C" primary key,
  value text not null
);

-- One row per event. Rows are inserted and deleted, never updated; ids are never reused, so an insert never names one.
-- payload is text: it is read exactly as written, and its size is known without reading it.
create table honeyflow_outbox (
  id          bigint generated always as identity primary key,
  format      smallint not null default 1,
  kind        text not null default 'row',
  tenant      text collate "C" not null default '',
  entity      text collate "C" not null,
  entity_key  text collate "C" not null,
  shard       smallint not null,
  priority    smallint not null default 4,
  workflow    text collate "C",
  created_at  timestamptz not null default clock_timestamp(),
  ready_at    timestamptz,
  dedupe      text collate "C",
  traceparent text,
  root        bigint,
  payload     text
);
create index honeyflow_outbox_ready on honeyflow_outbox (shard, priority, id) where ready_at is null;
create index honeyflow_outbox_due on honeyflow_outbox (shard, ready_at) where ready_at is not null;

-- Computes the shard, which writers do not set. A shard or priority out of range is corrected, not refused: no poll
-- would find such a row, and the application's transaction must not fail because of it.
create function honeyflow_place() returns trigger language plpgsql as $body$
declare
  hash bytea := pg_catalog.sha256(pg_catalog.convert_to(
    new.tenant || pg_catalog.chr(31) || new.entity || pg_catalog.chr(31) || new.entity_key, 'UTF8'));
begin
  new.shard := (pg_catalog.get_byte(hash, 0) * 256 + pg_catalog.get_byte(hash, 1)) % {shards};
  new.priority := greatest(0, least(9, coalesce(new.priority, 4)));
  return new;
end $body$;
create trigger honeyflow_place before insert on honeyflow_outbox for each row
  when (new.shard is null or new.shard not between 0 and {shards} - 1 or new.priority is null
    or new.priority not between 0 and 9)
  execute function honeyflow_place();

-- Stored outputs of steps, so that a repeated run does not execute them again. shard: the shard under whose lease they
-- were written. parked: 0, or the id of the parked entry that owns them.
create table honeyflow_checkpoint (
  shard      smallint not null,
  tenant     text collate "C" not null,
  entity     text collate "C" not null,
  entity_key text collate "C" not null,
  workflow   text collate "C" not null,
  parked     bigint not null default 0,
  phase      integer not null,
  step       text collate "C" not null,
  instance   integer not null,
  version    integer not null,
  covers     bigint[] not null,
  attempt    integer not null,
  stamp      bigint not null,
  outcome    text not null,
  output     text,
  created_at timestamptz not null default clock_timestamp(),
  primary key (shard, tenant, entity, entity_key, workflow, parked, phase, step, instance)
);
create index honeyflow_checkpoint_parked on honeyflow_checkpoint (parked) where parked <> 0;

-- Counted attempts of items that will be retried.
create table honeyflow_failure (
  shard      smallint not null,
  tenant     text collate "C" not null,
  entity     text collate "C" not null,
  entity_key text collate "C" not null,
  workflow   text collate "C" not null,
  phase      integer not null,
  step       text collate "C" not null,
  instance   integer not null,
  attempts   integer not null,
  ready_at   timestamptz not null,
  failure    text not null,
  primary key (shard, tenant, entity, entity_key, workflow, phase, step, instance)
);

-- Parked runs with their error. workflow '': an obligation to all workflows. event: the id of the message's row; 0 if a
-- run reads the current data.
create table honeyflow_parked (
  id         bigint generated always as identity primary key,
  tenant     text collate "C" not null,
  entity     text collate "C" not null,
  entity_key text collate "C" not null,
  workflow   text collate "C" not null default '',
  phase      integer not null default 0,
  step       text collate "C" not null default '',
  instance   integer not null default 0,
  event      bigint not null default 0,
  format     smallint not null default 1,
  kind       text not null default 'row',
  priority   smallint not null,
  version    integer not null default 0,
  attempts   integer not null,
  class      text not null,
  code       text not null,
  message    text not null,
  parked_at  timestamptz not null default clock_timestamp(),
  payload    text
);
create unique index honeyflow_parked_item
  on honeyflow_parked (tenant, entity, entity_key, workflow, phase, step, instance, event);

-- Producers' message ids that are done (entity not ''), and idempotency keys of stored requests (entity '').
create table honeyflow_dedupe (
  tenant     text collate "C" not null,
  entity     text collate "C" not null,
  entity_key text collate "C" not null,
  dedupe     text collate "C" not null,
  until_at   timestamptz not null,
  body_hash  bigint,
  ids        bigint[],
  primary key (tenant, entity, entity_key, dedupe)
);
create index honeyflow_dedupe_until on honeyflow_dedupe (until_at);

-- Definition versions. used_at: when a node last used the version, or when a row was last seen to name it.
create table honeyflow_definition (
  workflow   text collate "C" not null,
  version    integer not null,
  definition text not null,
  created_at timestamptz not null default clock_timestamp(),
  used_at    timestamptz not null default clock_timestamp(),
  primary key (workflow, version)
);

create table honeyflow_pause (
  noun     text collate "C" not null,
  name     text collate "C" not null,
  why      text not null,
  since_at timestamptz not null default clock_timestamp(),
  primary key (noun, name)
);

-- Stored events for which a run may wait, under the name and key of their target. event_at: when the event was written.
create table honeyflow_signal (
  id         bigint generated always as identity primary key,
  tenant     text collate "C" not null,
  name       text collate "C" not null,
  signal_key text collate "C" not null,
  event      bigint not null,
  kind       text not null,
  priority   smallint not null,
  event_at   timestamptz not null,
  payload    text,
  created_at timestamptz not null default clock_timestamp(),
  until_at   timestamptz not null
);
create unique index honeyflow_signal_event on honeyflow_signal (tenant, name, signal_key, event);
create index honeyflow_signal_until on honeyflow_signal (until_at);

create table honeyflow_task (
  id         bigint generated always as identity primary key,
  noun       text collate "C" not null,
  name       text collate "C" not null,
  state      text not null,
  created_at timestamptz not null default clock_timestamp()
);
create unique index honeyflow_task_name on honeyflow_task (noun, name);

create table honeyflow_run (
  id         bigint generated always as identity primary key,
  tenant     text collate "C" not null,
  entity     text collate "C" not null,
  entity_key text collate "C" not null,
  workflow   text collate "C" not null,
  version    integer not null,
  verdict    text not null,
  steps      text not null,
  ended_at   timestamptz not null default clock_timestamp()
);
create index honeyflow_run_key on honeyflow_run (entity, entity_key, workflow);
