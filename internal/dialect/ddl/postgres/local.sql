DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'shardway') THEN CREATE SCHEMA shardway; END IF;
END $$

CREATE TABLE IF NOT EXISTS shardway.local_store (
    one_row int PRIMARY KEY CHECK (one_row = 1),
    store_id text NOT NULL,
    major int NOT NULL,
    minor int NOT NULL,
    forgotten_seq bigint NOT NULL
)

CREATE TABLE IF NOT EXISTS shardway.local_shard_maps (
    map_id bigint PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    kind smallint NOT NULL,
    key_kind smallint NOT NULL
)

CREATE TABLE IF NOT EXISTS shardway.local_shards (
    map_id bigint PRIMARY KEY,
    shard_id bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    engine text COLLATE "C" NOT NULL,
    database_name text COLLATE "C" NOT NULL,
    servers text NOT NULL,
    status smallint NOT NULL,
    version bigint NOT NULL,
    fence smallint CHECK (fence IS NULL)
)

CREATE TABLE IF NOT EXISTS shardway.local_mappings (
    mapping_id bigint PRIMARY KEY,
    map_id bigint NOT NULL,
    low_key bytea NOT NULL,
    high_key bytea,
    shard_id bigint NOT NULL,
    status smallint NOT NULL,
    fence smallint CHECK (fence IS NULL),
    UNIQUE (map_id, low_key)
)

CREATE TABLE IF NOT EXISTS shardway.local_operations (
    op_id bigint PRIMARY KEY,
    seq bigint NOT NULL,
    epoch bigint NOT NULL,
    state smallint NOT NULL
)

CREATE INDEX IF NOT EXISTS local_operations_not_applied ON shardway.local_operations (seq) WHERE state <> 2
