CREATE TABLE IF NOT EXISTS shardway_store (
    one_row int PRIMARY KEY CHECK (one_row = 1),
    store_id varchar(128) NOT NULL,
    major int NOT NULL,
    minor int NOT NULL,
    created bigint NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin

CREATE TABLE IF NOT EXISTS shardway_counters (
    one_row int PRIMARY KEY CHECK (one_row = 1),
    operation_seq bigint NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin

CREATE TABLE IF NOT EXISTS shardway_shard_maps (
    map_id bigint PRIMARY KEY,
    name varchar(128) NOT NULL UNIQUE,
    kind smallint NOT NULL,
    key_kind smallint NOT NULL,
    generation bigint NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin

CREATE TABLE IF NOT EXISTS shardway_shards (
    shard_id bigint PRIMARY KEY,
    map_id bigint NOT NULL,
    name varchar(128) NOT NULL,
    engine varchar(128) NOT NULL,
    database_name varchar(255) NOT NULL,
    servers mediumtext NOT NULL,
    status smallint NOT NULL,
    version bigint NOT NULL,
    op_id bigint NOT NULL,
    pending smallint NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin

CREATE TABLE IF NOT EXISTS shardway_mappings (
    mapping_id bigint NOT NULL UNIQUE,
    map_id bigint NOT NULL,
    low_key varbinary(512) NOT NULL,
    high_key varbinary(512),
    shard_id bigint NOT NULL,
    status smallint NOT NULL,
    op_id bigint NOT NULL,
    lock_token varbinary(512),
    lock_owner mediumtext NOT NULL,
    lock_reason mediumtext NOT NULL,
    lock_expires bigint NOT NULL,
    PRIMARY KEY (map_id, low_key),
    KEY mappings_by_shard (shard_id, low_key),
    KEY mappings_by_operation (op_id),
    KEY mappings_by_token (lock_token(16))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin

CREATE TABLE IF NOT EXISTS shardway_pending_mappings (
    mapping_id bigint NOT NULL UNIQUE,
    map_id bigint NOT NULL,
    low_key varbinary(512) NOT NULL,
    high_key varbinary(512),
    shard_id bigint NOT NULL,
    status smallint NOT NULL,
    op_id bigint NOT NULL,
    lock_token varbinary(512),
    lock_owner mediumtext NOT NULL,
    lock_reason mediumtext NOT NULL,
    lock_expires bigint NOT NULL,
    PRIMARY KEY (map_id, op_id, low_key)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin

CREATE TABLE IF NOT EXISTS shardway_operations (
    op_id bigint PRIMARY KEY,
    seq bigint NOT NULL UNIQUE,
    map_id bigint NOT NULL,
    kind mediumtext NOT NULL,
    who mediumtext NOT NULL,
    reason mediumtext NOT NULL,
    summary mediumtext NOT NULL,
    started bigint NOT NULL,
    epoch bigint NOT NULL,
    owner mediumtext NOT NULL,
    lease_until bigint NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin

CREATE TABLE IF NOT EXISTS shardway_operation_parts (
    op_id bigint NOT NULL,
    part int NOT NULL,
    body mediumtext NOT NULL,
    PRIMARY KEY (op_id, part)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin

CREATE TABLE IF NOT EXISTS shardway_history (
    entry_id bigint AUTO_INCREMENT PRIMARY KEY,
    op_id bigint NOT NULL,
    made_at bigint NOT NULL,
    map_id bigint NOT NULL,
    map_name varchar(128) NOT NULL,
    kind mediumtext NOT NULL,
    outcome smallint NOT NULL,
    who mediumtext NOT NULL,
    reason mediumtext NOT NULL,
    summary mediumtext NOT NULL,
    generation bigint NOT NULL,
    ranges longblob NOT NULL,
    KEY history_by_generation (map_id, generation),
    KEY history_by_operation (op_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
