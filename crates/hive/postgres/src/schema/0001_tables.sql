-- These rows are updated very often: free space on their pages, and frequent vacuuming of dead row versions.
create table hive_node (
  hive       text collate "C" not null,
  id         uuid not null,
  name       text collate "C" not null,
  beat       bigint not null,
  beat_ms    bigint not null,
  ttl_ms     bigint not null,
  expires_ms bigint not null,
  engaged_ms bigint not null default 0,
  ready      boolean not null default false,
  eligible   boolean not null default false,
  warm       jsonb not null default '[]',
  meta       jsonb not null,
  primary key (hive, id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
create index hive_node_expires on hive_node(hive, expires_ms, id);
-- Rows are never deleted: an epoch outlives its holder.
create table hive_lease (
  hive     text collate "C" not null,
  name     text collate "C" not null,
  epoch    bigint not null,
  holder   uuid,
  heir     uuid,
  since_ms bigint not null,
  cause    text not null,
  primary key (hive, name)
);
create index hive_lease_heir on hive_lease(hive, heir) where heir is not null;
create table hive_view (
  hive       text collate "C" not null primary key,
  origin     uuid not null,
  lineage    text collate "C",
  lineage_ms bigint not null default 0,
  max_ttl_ms bigint not null default 0,
  hold       text,
  version    bigint not null default 0,
  limits     bigint not null default 0,
  alive      bigint not null default 0,
  ready      bigint not null default 0,
  engaged    bigint not null default 0,
  epoch      bigint not null default 0,
  counted_ms bigint not null default 0
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
create table hive_event (
  hive    text collate "C" not null,
  version bigint not null,
  at_ms   bigint not null,
  kind    text not null,
  node    uuid,
  lease   text collate "C",
  epoch   bigint,
  cause   text not null,
  primary key (hive, version)
);
-- limit_key: 32 hexadecimal digits; '' is the definition in force, 'next' the next definition.
-- effective_ms: of a definition, since when it is in force; of a bucket, when its window ends.
-- slot, booked_u, next_u: the present second, and the reservations of it and of the next; the rest is for their fair division.
create table hive_limit (
  hive         text collate "C" not null,
  name         text collate "C" not null,
  limit_key    text collate "C" not null,
  version      bigint not null,
  rate_u       bigint not null,
  period_ms    bigint not null,
  burst_u      bigint not null,
  effective_ms bigint not null,
  pool_u       bigint not null default 0,
  pool_ms      bigint not null default 0,
  issued_u     bigint not null default 0,
  slot         bigint not null default 0,
  booked_u     bigint not null default 0,
  next_u       bigint not null default 0,
  level_u      bigint not null default 0,
  asked_u      bigint not null default 0,
  weight       bigint not null default 0,
  cut_weight   bigint not null default 0,
  primary key (hive, name, limit_key)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 500);
create index hive_limit_definition on hive_limit(hive, name, limit_key) where limit_key in ('', 'next');
create table hive_share (
  hive      text collate "C" not null,
  name      text collate "C" not null,
  limit_key text collate "C" not null,
  node      uuid not null,
  has_u     bigint not null default 0,
  until_ms  bigint not null default 0,
  seq       bigint not null default 0,
  wants_u   bigint not null default 0,
  weight    bigint not null default 1,
  primary key (hive, name, limit_key, node)
);
create index hive_share_node on hive_share(hive, node);
