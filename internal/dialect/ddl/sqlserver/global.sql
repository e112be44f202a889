IF SCHEMA_ID('shardway') IS NULL EXEC('CREATE SCHEMA shardway')

IF OBJECT_ID('shardway.store') IS NULL
CREATE TABLE shardway.store (
    one_row int PRIMARY KEY CHECK (one_row = 1),
    store_id nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL,
    major int NOT NULL,
    minor int NOT NULL,
    created bigint NOT NULL
)

IF OBJECT_ID('shardway.counters') IS NULL
CREATE TABLE shardway.counters (
    one_row int PRIMARY KEY CHECK (one_row = 1),
    operation_seq bigint NOT NULL
)

IF OBJECT_ID('shardway.shard_maps') IS NULL
CREATE TABLE shardway.shard_maps (
    map_id bigint PRIMARY KEY,
    name nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL UNIQUE,
    kind smallint NOT NULL,
    key_kind smallint NOT NULL,
    generation bigint NOT NULL
)

IF OBJECT_ID('shardway.shards') IS NULL
CREATE TABLE shardway.shards (
    shard_id bigint PRIMARY KEY,
    map_id bigint NOT NULL,
    name nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL,
    engine nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL,
    database_name nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL,
    servers nvarchar(max) NOT NULL,
    status smallint NOT NULL,
    version bigint NOT NULL,
    op_id bigint NOT NULL,
    pending smallint NOT NULL
)

IF OBJECT_ID('shardway.mappings') IS NULL
CREATE TABLE shardway.mappings (
    mapping_id bigint NOT NULL UNIQUE,
    map_id bigint NOT NULL,
    low_key varbinary(512) NOT NULL,
    high_key varbinary(512),
    shard_id bigint NOT NULL,
    status smallint NOT NULL,
    op_id bigint NOT NULL,
    lock_token varbinary(512),
    lock_owner nvarchar(max) NOT NULL,
    lock_reason nvarchar(max) NOT NULL,
    lock_expires bigint NOT NULL,
    PRIMARY KEY (map_id, low_key)
)

IF NOT EXISTS (SELECT 1 FROM sys.indexes WHERE name = 'mappings_by_shard' AND object_id = OBJECT_ID('shardway.mappings'))
CREATE INDEX mappings_by_shard ON shardway.mappings (shard_id, low_key)

IF NOT EXISTS (SELECT 1 FROM sys.indexes WHERE name = 'mappings_by_operation' AND object_id = OBJECT_ID('shardway.mappings'))
CREATE INDEX mappings_by_operation ON shardway.mappings (op_id) WHERE op_id > 0

IF NOT EXISTS (SELECT 1 FROM sys.indexes WHERE name = 'mappings_by_token' AND object_id = OBJECT_ID('shardway.mappings'))
CREATE INDEX mappings_by_token ON shardway.mappings (lock_token) WHERE lock_token IS NOT NULL

IF OBJECT_ID('shardway.pending_mappings') IS NULL
CREATE TABLE shardway.pending_mappings (
    mapping_id bigint NOT NULL UNIQUE,
    map_id bigint NOT NULL,
    low_key varbinary(512) NOT NULL,
    high_key varbinary(512),
    shard_id bigint NOT NULL,
    status smallint NOT NULL,
    op_id bigint NOT NULL,
    lock_token varbinary(512),
    lock_owner nvarchar(max) NOT NULL,
    lock_reason nvarchar(max) NOT NULL,
    lock_expires bigint NOT NULL,
    PRIMARY KEY (map_id, op_id, low_key)
)

IF OBJECT_ID('shardway.operations') IS NULL
CREATE TABLE shardway.operations (
    op_id bigint PRIMARY KEY,
    seq bigint NOT NULL UNIQUE,
    map_id bigint NOT NULL,
    kind nvarchar(max) NOT NULL,
    who nvarchar(max) NOT NULL,
    reason nvarchar(max) NOT NULL,
    summary nvarchar(max) NOT NULL,
    started bigint NOT NULL,
    epoch bigint NOT NULL,
    owner nvarchar(max) NOT NULL,
    lease_until bigint NOT NULL
)

IF OBJECT_ID('shardway.operation_parts') IS NULL
CREATE TABLE shardway.operation_parts (
    op_id bigint NOT NULL,
    part int NOT NULL,
    body nvarchar(max) NOT NULL,
    PRIMARY KEY (op_id, part)
)

IF OBJECT_ID('shardway.history') IS NULL
CREATE TABLE shardway.history (
    entry_id bigint IDENTITY(1, 1) PRIMARY KEY,
    op_id bigint NOT NULL,
    made_at bigint NOT NULL,
    map_id bigint NOT NULL,
    map_name nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL,
    kind nvarchar(max) NOT NULL,
    outcome smallint NOT NULL,
    who nvarchar(max) NOT NULL,
    reason nvarchar(max) NOT NULL,
    summary nvarchar(max) NOT NULL,
    generation bigint NOT NULL,
    ranges varbinary(max) NOT NULL
)

IF NOT EXISTS (SELECT 1 FROM sys.indexes WHERE name = 'history_by_generation' AND object_id = OBJECT_ID('shardway.history'))
CREATE INDEX history_by_generation ON shardway.history (map_id, generation)

IF NOT EXISTS (SELECT 1 FROM sys.indexes WHERE name = 'history_by_operation' AND object_id = OBJECT_ID('shardway.history'))
CREATE INDEX history_by_operation ON shardway.history (op_id)
