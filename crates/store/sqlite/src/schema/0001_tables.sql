create table honeyflow_meta (
  name  text not null primary key,
  value text not null
) without rowid;

-- One row per event. Rows are inserted and deleted, never updated; ids are never reused.
create table honeyflow_outbox (
  id          integer primary key autoincrement,
  format      smallint not null default 1,
  kind        text not null default 'row',
  tenant      text not null default '',
  entity      text not null,
  entity_key  text not null,
  shard       smallint not null default 0,
  priority    smallint not null default 4,
  workflow    text,
  created_at  integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer)),
  ready_at    integer,
  dedupe      text,
  traceparent text,
  root        bigint,
  payload     text
);
-- Polls find rows of the default priority by the primary key: the application's transaction writes one page less.
create index honeyflow_outbox_ready on honeyflow_outbox (shard, priority, id) where ready_at is null and priority <> 4;
create index honeyflow_outbox_due on honeyflow_outbox (shard, ready_at) where ready_at is not null;

-- Stored outputs of steps, so that a repeated run does not execute them again. parked: 0, or the id of the parked entry
-- that owns them.
create table honeyflow_checkpoint (
  tenant     text not null,
  entity     text not null,
  entity_key text not null,
  workflow   text not null,
  parked     integer not null default 0,
  phase      integer not null,
  step       text not null,
  instance   integer not null,
  version    integer not null,
  covers     text not null,
  attempt    integer not null,
  stamp      bigint not null,
  outcome    text not null,
  output     text,
  created_at integer not null,
  primary key (tenant, entity, entity_key, workflow, parked, phase, step, instance)
) without rowid;

-- Counted attempts of items that will be retried.
create table honeyflow_failure (
  tenant     text not null,
  entity     text not null,
  entity_key text not null,
  workflow   text not null,
  phase      integer not null,
  step       text not null,
  instance   integer not null,
  attempts   integer not null,
  ready_at   integer not null,
  failure    text not null,
  primary key (tenant, entity, entity_key, workflow, phase, step, instance)
) without rowid;

-- Parked runs with their error. workflow '': an obligation to all workflows. event: the id of the message's row; 0 if a
-- run reads the current data.
create table honeyflow_parked (
  id         integer primary key autoincrement,
  tenant     text not null,
  entity     text not null,
  entity_key text not null,
  workflow   text not null default '',
  phase      integer not null default 0,
  step       text not null default '',
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
  parked_at  integer not null,
  payload    text
);
create unique index honeyflow_parked_item
  on honeyflow_parked (tenant, entity, entity_key, workflow, phase, step, instance, event);

-- Producers' message ids that are done (entity not ''), and idempotency keys of stored requests (entity '').
create table honeyflow_dedupe (
  tenant     text not null,
  entity     text not null,
  entity_key text not null,
  dedupe     text not null,
  until_ms   integer not null,
  body_hash  bigint,
  ids        text,
  primary key (tenant, entity, entity_key, dedupe)
) without rowid;
create index honeyflow_dedupe_until on honeyflow_dedupe (until_ms);

-- Definition versions. used_at: when a node last used the version, or when a row was last seen to name it.
create table honeyflow_definition (
  workflow   text not null,
  version    integer not null,
  definition text not null,
  created_at integer not null,
  used_at    integer not null,
  primary key (workflow, version)
) without rowid;

create table honeyflow_pause (
  noun     text not null,
  name     text not null,
  why      text not null,
  since_ms integer not null,
  primary key (noun, name)
) without rowid;

-- Stored events for which a run may wait, under the name and key of their target. event_at: when the event was written.
create table honeyflow_signal (
  id         integer primary key autoincrement,
  tenant     text not null,
  name       text not null,
  signal_key text not null,
  event      bigint not null,
  kind       text not null,
  priority   smallint not null,
  event_at   integer not null,
  payload    text,
  created_at integer not null,
  until_ms   integer not null
);
create unique index honeyflow_signal_event on honeyflow_signal (tenant, name, signal_key, event);
create index honeyflow_signal_until on honeyflow_signal (until_ms);

create table honeyflow_task (
  id         integer primary key autoincrement,
  noun       text not null,
  name       text not null,
  state      text not null,
  created_at integer not null
);
create unique index honeyflow_task_name on honeyflow_task (noun, name);

create table honeyflow_run (
  id         integer primary key autoincrement,
  tenant     text not null,
  entity     text not null,
  entity_key text not null,
  workflow   text not null,
  version    integer not null,
  verdict    text not null,
  steps      text not null,
  ended_at   integer not null
);
create index honeyflow_run_key on honeyflow_run (entity, entity_key, workflow);
