CREATE TABLE IF NOT EXISTS shardway_local_store (
    one_row integer PRIMARY KEY CHECK (one_row = 1),
    store_id text NOT NULL,
    major integer NOT NULL,
    minor integer NOT NULL,
    forgotten_seq integer NOT NULL
)

CREATE TABLE IF NOT EXISTS shardway_local_shard_maps (
    map_id integer PRIMARY KEY,
    name text NOT NULL,
    kind integer NOT NULL,
    key_kind integer NOT NULL
)

CREATE TABLE IF NOT EXISTS shardway_local_shards (
    map_id integer PRIMARY KEY,
    shard_id integer NOT NULL,
    name text NOT NULL,
    engine text NOT NULL,
    database_name text NOT NULL,
    servers text NOT NULL,
    status integer NOT NULL,
    version integer NOT NULL
)

CREATE TABLE IF NOT EXISTS shardway_local_mappings (
    mapping_id integer PRIMARY KEY,
    map_id integer NOT NULL,
    low_key blob NOT NULL,
    high_key blob,
    shard_id integer NOT NULL,
    status integer NOT NULL,
    UNIQUE (map_id, low_key)
)

CREATE TABLE IF NOT EXISTS shardway_local_operations (
    op_id integer PRIMARY KEY,
    seq integer NOT NULL,
    epoch integer NOT NULL,
    state integer NOT NULL
)

CREATE INDEX IF NOT EXISTS shardway_local_operations_not_applied ON shardway_local_operations (seq) WHERE state <> 2
