CREATE TABLE IF NOT EXISTS shardway_store (
    one_row integer PRIMARY KEY CHECK (one_row = 1),
    store_id text NOT NULL,
    major integer NOT NULL,
    minor integer NOT NULL,
    created integer NOT NULL
)

CREATE TABLE IF NOT EXISTS shardway_counters (
    one_row integer PRIMARY KEY CHECK (one_row = 1),
    operation_seq integer NOT NULL
)

CREATE TABLE IF NOT EXISTS shardway_shard_maps (
    map_id integer PRIMARY KEY,
    name text NOT NULL UNIQUE,
    kind integer NOT NULL,
    key_kind integer NOT NULL,
    generation integer NOT NULL
)

CREATE TABLE IF NOT EXISTS shardway_shards (
    shard_id integer PRIMARY KEY,
    map_id integer NOT NULL,
    name text NOT NULL,
    engine text NOT NULL,
    database_name text NOT NULL,
    servers text NOT NULL,
    status integer NOT NULL,
    version integer NOT NULL,
    op_id integer NOT NULL,
    pending integer NOT NULL
)

CREATE TABLE IF NOT EXISTS shardway_mappings (
    mapping_id integer NOT NULL UNIQUE,
    map_id integer NOT NULL,
    low_key blob NOT NULL,
    high_key blob,
    shard_id integer NOT NULL,
    status integer NOT NULL,
    op_id integer NOT NULL,
    lock_token blob,
    lock_owner text NOT NULL,
    lock_reason text NOT NULL,
    lock_expires integer NOT NULL,
    UNIQUE (map_id, low_key)
)

CREATE INDEX IF NOT EXISTS shardway_mappings_by_shard ON shardway_mappings (shard_id, low_key)

CREATE INDEX IF NOT EXISTS shardway_mappings_by_operation ON shardway_mappings (op_id) WHERE op_id > 0

CREATE INDEX IF NOT EXISTS shardway_mappings_by_token ON shardway_mappings (lock_token) WHERE lock_token IS NOT NULL

CREATE TABLE IF NOT EXISTS shardway_pending_mappings (
    mapping_id integer NOT NULL UNIQUE,
    map_id integer NOT NULL,
    low_key blob NOT NULL,
    high_key blob,
    shard_id integer NOT NULL,
    status integer NOT NULL,
    op_id integer NOT NULL,
    lock_token blob,
    lock_owner text NOT NULL,
    lock_reason text NOT NULL,
    lock_expires integer NOT NULL,
    UNIQUE (map_id, op_id, low_key)
)

CREATE TABLE IF NOT EXISTS shardway_operations (
    op_id integer PRIMARY KEY,
    seq integer NOT NULL UNIQUE,
    map_id integer NOT NULL,
    kind text NOT NULL,
    who text NOT NULL,
    reason text NOT NULL,
    summary text NOT NULL,
    started integer NOT NULL,
    epoch integer NOT NULL,
    owner text NOT NULL,
    lease_until integer NOT NULL
)

CREATE TABLE IF NOT EXISTS shardway_operation_parts (
    op_id integer NOT NULL,
    part integer NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (op_id, part)
)

CREATE TABLE IF NOT EXISTS shardway_history (
    entry_id integer PRIMARY KEY AUTOINCREMENT,
    op_id integer NOT NULL,
    made_at integer NOT NULL,
    map_id integer NOT NULL,
    map_name text NOT NULL,
    kind text NOT NULL,
    outcome integer NOT NULL,
    who text NOT NULL,
    reason text NOT NULL,
    summary text NOT NULL,
    generation integer NOT NULL,
    ranges blob NOT NULL
)

CREATE INDEX IF NOT EXISTS shardway_history_by_generation ON shardway_history (map_id, generation)

CREATE INDEX IF NOT EXISTS shardway_history_by_operation ON shardway_history (op_id)
