CREATE TABLE IF NOT EXISTS shardway_local_store (
    one_row int PRIMARY KEY CHECK (one_row = 1),
    store_id varchar(128) NOT NULL,
    major int NOT NULL,
    minor int NOT NULL,
    forgotten_seq bigint NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin

CREATE TABLE IF NOT EXISTS shardway_local_shard_maps (
    map_id bigint PRIMARY KEY,
    name varchar(128) NOT NULL,
    kind smallint NOT NULL,
    key_kind smallint NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin

CREATE TABLE IF NOT EXISTS shardway_local_shards (
    map_id bigint PRIMARY KEY,
    shard_id bigint NOT NULL,
    name varchar(128) NOT NULL,
    engine varchar(128) NOT NULL,
    database_name varchar(255) NOT NULL,
    servers mediumtext NOT NULL,
    status smallint NOT NULL,
    version bigint NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin

CREATE TABLE IF NOT EXISTS shardway_local_mappings (
    mapping_id bigint PRIMARY KEY,
    map_id bigint NOT NULL,
    low_key varbinary(512) NOT NULL,
    high_key varbinary(512),
    shard_id bigint NOT NULL,
    status smallint NOT NULL,
    UNIQUE (map_id, low_key)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin

CREATE TABLE IF NOT EXISTS shardway_local_operations (
    op_id bigint PRIMARY KEY,
    seq bigint NOT NULL,
    epoch bigint NOT NULL,
    state smallint NOT NULL,
    KEY local_operations_by_state (state, seq)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
