IF SCHEMA_ID('shardway') IS NULL EXEC('CREATE SCHEMA shardway')

IF OBJECT_ID('shardway.local_store') IS NULL
CREATE TABLE shardway.local_store (
    one_row int PRIMARY KEY CHECK (one_row = 1),
    store_id nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL,
    major int NOT NULL,
    minor int NOT NULL,
    forgotten_seq bigint NOT NULL
)

IF OBJECT_ID('shardway.local_shard_maps') IS NULL
CREATE TABLE shardway.local_shard_maps (
    map_id bigint PRIMARY KEY,
    name nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL,
    kind smallint NOT NULL,
    key_kind smallint NOT NULL
)

IF OBJECT_ID('shardway.local_shards') IS NULL
CREATE TABLE shardway.local_shards (
    map_id bigint PRIMARY KEY,
    shard_id bigint NOT NULL,
    name nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL,
    engine nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL,
    database_name nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL,
    servers nvarchar(max) NOT NULL,
    status smallint NOT NULL,
    version bigint NOT NULL
)

IF OBJECT_ID('shardway.local_mappings') IS NULL
CREATE TABLE shardway.local_mappings (
    mapping_id bigint PRIMARY KEY,
    map_id bigint NOT NULL,
    low_key varbinary(512) NOT NULL,
    high_key varbinary(512),
    shard_id bigint NOT NULL,
    status smallint NOT NULL,
    UNIQUE (map_id, low_key)
)

IF OBJECT_ID('shardway.local_operations') IS NULL
CREATE TABLE shardway.local_operations (
    op_id bigint PRIMARY KEY,
    seq bigint NOT NULL,
    epoch bigint NOT NULL,
    state smallint NOT NULL
)

IF NOT EXISTS (SELECT 1 FROM sys.indexes WHERE name = 'local_operations_not_applied' AND object_id = OBJECT_ID('shardway.local_operations'))
CREATE INDEX local_operations_not_applied ON shardway.local_operations (seq) WHERE state <> 2
