DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'shardway') THEN CREATE SCHEMA shardway; END IF;
END $$

CREATE TABLE IF NOT EXISTS shardway.store (
    one_row int PRIMARY KEY CHECK (one_row = 1),
    store_id text NOT NULL,
    major int NOT NULL,
    minor int NOT NULL,
    created bigint NOT NULL
)

CREATE TABLE IF NOT EXISTS shardway.counters (
    one_row int PRIMARY KEY CHECK (one_row = 1),
    operation_seq bigint NOT NULL
)

CREATE TABLE IF NOT EXISTS shardway.shard_maps (
    map_id bigint PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    kind smallint NOT NULL,
    key_kind smallint NOT NULL,
    generation bigint NOT NULL
)

CREATE TABLE IF NOT EXISTS shardway.shards (
    shard_id bigint PRIMARY KEY,
    map_id bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    engine text COLLATE "C" NOT NULL,
    database_name text COLLATE "C" NOT NULL,
    servers text NOT NULL,
    status smallint NOT NULL,
    version bigint NOT NULL,
    op_id bigint NOT NULL,
    pending smallint NOT NULL
)

CREATE TABLE IF NOT EXISTS shardway.mappings (
    mapping_id bigint NOT NULL UNIQUE,
    map_id bigint NOT NULL,
    low_key bytea NOT NULL,
    high_key bytea,
    shard_id bigint NOT NULL,
    status smallint NOT NULL,
    op_id bigint NOT NULL,
    lock_token bytea,
    lock_owner text NOT NULL,
    lock_reason text NOT NULL,
    lock_expires bigint NOT NULL,
    PRIMARY KEY (map_id, low_key)
)

CREATE INDEX IF NOT EXISTS mappings_by_shard ON shardway.mappings (shard_id, low_key)

CREATE INDEX IF NOT EXISTS mappings_by_operation ON shardway.mappings (op_id) WHERE op_id > 0

CREATE INDEX IF NOT EXISTS mappings_by_token ON shardway.mappings (lock_token) WHERE lock_token IS NOT NULL

CREATE TABLE IF NOT EXISTS shardway.pending_mappings (
    mapping_id bigint NOT NULL UNIQUE,
    map_id bigint NOT NULL,
    low_key bytea NOT NULL,
    high_key bytea,
    shard_id bigint NOT NULL,
    status smallint NOT NULL,
    op_id bigint NOT NULL,
    lock_token bytea,
    lock_owner text NOT NULL,
    lock_reason text NOT NULL,
    lock_expires bigint NOT NULL,
    PRIMARY KEY (map_id, op_id, low_key)
)

CREATE TABLE IF NOT EXISTS shardway.operations (
    op_id bigint PRIMARY KEY,
    seq bigint NOT NULL UNIQUE,
    map_id bigint NOT NULL,
    kind text NOT NULL,
    who text NOT NULL,
    reason text NOT NULL,
    summary text NOT NULL,
    started bigint NOT NULL,
    epoch bigint NOT NULL,
    owner text NOT NULL,
    lease_until bigint NOT NULL
)

CREATE TABLE IF NOT EXISTS shardway.operation_parts (
    op_id bigint NOT NULL,
    part int NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (op_id, part)
)

CREATE TABLE IF NOT EXISTS shardway.history (
    entry_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    op_id bigint NOT NULL,
    made_at bigint NOT NULL,
    map_id bigint NOT NULL,
    map_name text NOT NULL,
    kind text NOT NULL,
    outcome smallint NOT NULL,
    who text NOT NULL,
    reason text NOT NULL,
    summary text NOT NULL,
    generation bigint NOT NULL,
    ranges bytea NOT NULL
)

CREATE INDEX IF NOT EXISTS history_by_generation ON shardway.history (map_id, generation)

CREATE INDEX IF NOT EXISTS history_by_operation ON shardway.history (op_id)
