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
    KEY mappings_by_operation (op_id)
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
    KEY local_operations_not_applied (seq)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin

INSERT INTO shardway_store VALUES (1, 'DRKCSZNZZYKWLP7ZIELLWPH5AN', 1, 0, 1796007830206788)

INSERT INTO shardway_counters VALUES (1, 9)

INSERT INTO shardway_shard_maps VALUES (1969332800558971249, 'empty', 2, 2, 1)

INSERT INTO shardway_shard_maps VALUES (3887715960413257351, 'customers', 2, 2, 2)

INSERT INTO shardway_shard_maps VALUES (4245666417515953036, 'tenants ü', 1, 4, 2)

INSERT INTO shardway_shard_maps VALUES (545116381575717744, 'words', 2, 5, 2)

INSERT INTO shardway_shards VALUES (282100642270857540, 4245666417515953036, 'eu1 ''quoted''', 'postgres', 'tenants', '[{"address":"db1.example:5432","tags":{"zone":"a"}},{"address":"[::1]:5432"}]', 0, 5043860045726244518, 0, 0)

INSERT INTO shardway_shards VALUES (4404303939100627133, 545116381575717744, 'eu1 ''quoted''', 'postgres', 'tenants', '[{"address":"db1.example:5432","tags":{"zone":"a"}},{"address":"[::1]:5432"}]', 0, 476424943768763692, 0, 0)

INSERT INTO shardway_shards VALUES (7581502148527639394, 3887715960413257351, 'eu1 ''quoted''', 'postgres', 'tenants', '[{"address":"db1.example:5432","tags":{"zone":"a"}},{"address":"[::1]:5432"}]', 0, 3169635188819260060, 0, 0)

INSERT INTO shardway_mappings VALUES (1517252644980004314, 3887715960413257351, x'7ffffffffffffffb', x'8000000000000000', 7581502148527639394, 0, 6598815748951582182, x'73656372657420ff20746f6b656e', 'mover', 'moves', 2082855845000006)

INSERT INTO shardway_mappings VALUES (2182538931045653872, 545116381575717744, x'0001', x'6127625c6300ffc3bcff0001', 4404303939100627133, 0, 1879867315328572535, x'73656372657420ff20746f6b656e', 'mover', 'moves', 2082855845000006)

INSERT INTO shardway_mappings VALUES (4042589756961006166, 3887715960413257351, x'8020000000000000', NULL, 7581502148527639394, 1, 0, NULL, '', '', 0)

INSERT INTO shardway_mappings VALUES (4767290922693184087, 4245666417515953036, x'ff000000000000000000000000000000', NULL, 282100642270857540, 1, 0, NULL, '', '', 0)

INSERT INTO shardway_mappings VALUES (5248051219276087099, 4245666417515953036, x'01020300000000000000000000000000', NULL, 282100642270857540, 0, 2058550655665350416, x'73656372657420ff20746f6b656e', 'mover', 'moves', 2082855845000006)

INSERT INTO shardway_mappings VALUES (8190623889206127063, 545116381575717744, x'6127625c6300ffc3bcff0001', NULL, 4404303939100627133, 1, 0, NULL, '', '', 0)

INSERT INTO shardway_pending_mappings VALUES (5291149950472778981, 4245666417515953036, x'01020300000000000000000000000000', NULL, 282100642270857540, 1, 2058550655665350416, x'73656372657420ff20746f6b656e', 'mover', 'moves', 2082855845000006)

INSERT INTO shardway_pending_mappings VALUES (598248877858703827, 3887715960413257351, x'7ffffffffffffffb', x'8000000000000000', 7581502148527639394, 1, 6598815748951582182, x'73656372657420ff20746f6b656e', 'mover', 'moves', 2082855845000006)

INSERT INTO shardway_pending_mappings VALUES (6039721154564850271, 545116381575717744, x'0001', x'6127625c6300ffc3bcff0001', 4404303939100627133, 1, 1879867315328572535, x'73656372657420ff20746f6b656e', 'mover', 'moves', 2082855845000006)

INSERT INTO shardway_operations VALUES (1879867315328572535, 8, 545116381575717744, 'add', 'anna', 'why ''so''', 'some \\ mappings', 1796000523000004, 1, 'anna/1', 1796000580000000)

INSERT INTO shardway_operations VALUES (2058550655665350416, 5, 4245666417515953036, 'add', 'anna', 'why ''so''', 'some \\ mappings', 1796000523000004, 1, 'anna/1', 1796000580000000)

INSERT INTO shardway_operations VALUES (6598815748951582182, 2, 3887715960413257351, 'add', 'anna', 'why ''so''', 'some \\ mappings', 1796000523000004, 1, 'anna/1', 1796000580000000)

INSERT INTO shardway_operation_parts VALUES (1879867315328572535, 0, '{"v":1,"map":{"id":"0790a475fd112370","name":"words","kind":2,"key_kind":"string","generation":0},"steps":[{"shard":{"id":"3d1f3b18fcf250bd","map_id":"0790a475fd112370","name":"eu1 ''quoted''","engine":"postgres","database":"tenants","servers":[{"address":"db1.example:5432","tags":{"zone":"a"}},{"address":"[::1]:5432"}],"status":0,"version":"069c99f64f78fd2c"},"remove":[{"id":"1e49ef981d6fdd70","low":"0001","high":"6127625c6300ffc3bcff0001","shard_id":"3d1f3b18fcf250bd","status":0,"lock":{"token":"secret \\ufffd token","owner":"mover","reason":"moves","expires":"2036-01-02T03:04:05.000006Z"}}],"add":[{"id":"53d16663e840025f","low":"0001","high":"6127625c6300ffc3bcff0001","shard_id":"3d1f3b18fcf250bd","status":1,"lock":{"token":"secret \\ufffd token","owner":"mover","reason":"moves","expires":"2036-01-02T03:04:05.000006Z"}}]}]}')

INSERT INTO shardway_operation_parts VALUES (2058550655665350416, 0, '{"v":1,"map":{"id":"3aeba31cbad7fb8c","name":"tenants ü","kind":1,"key_kind":"uuid","generation":0},"steps":[{"shard":{"id":"03ea390a1d76c944","map_id":"3aeba31cbad7fb8c","name":"eu1 ''quoted''","engine":"postgres","database":"tenants","servers":[{"address":"db1.example:5432","tags":{"zone":"a"}},{"address":"[::1]:5432"}],"status":0,"version":"45ff63fcf24c5ea6"},"remove":[{"id":"48d4d2c75001bf3b","low":"01020300000000000000000000000000","shard_id":"03ea390a1d76c944","status":0,"lock":{"token":"secret \\ufffd token","owner":"mover","reason":"moves","expires":"2036-01-02T03:04:05.000006Z"}}],"add":[{"id":"496df0d8a34174e5","low":"01020300000000000000000000000000","shard_id":"03ea390a1d76c944","status":1,"lock":{"token":"secret \\ufffd token","owner":"mover","reason":"moves","expires":"2036-01-02T03:04:05.000006Z"}}]}]}')

INSERT INTO shardway_operation_parts VALUES (6598815748951582182, 0, '{"v":1,"map":{"id":"35f3f111680c7e87","name":"customers","kind":2,"key_kind":"int64","generation":0},"steps":[{"shard":{"id":"6936e8091ad9cb62","map_id":"35f3f111680c7e87","name":"eu1 ''quoted''","engine":"postgres","database":"tenants","servers":[{"address":"db1.example:5432","tags":{"zone":"a"}},{"address":"[::1]:5432"}],"status":0,"version":"2bfcce692926729c"},"remove":[{"id":"150e5d3dea8e15da","low":"7ffffffffffffffb","high":"8000000000000000","shard_id":"6936e8091ad9cb62","status":0,"lock":{"token":"secret \\ufffd token","owner":"mover","reason":"moves","expires":"2036-01-02T03:04:05.000006Z"}}],"add":[{"id":"084d682f4c0b49d3","low":"7ffffffffffffffb","high":"8000000000000000","shard_id":"6936e8091ad9cb62","status":1,"lock":{"token":"secret \\ufffd token","owner":"mover","reason":"moves","expires":"2036-01-02T03:04:05.000006Z"}}]}]}')

INSERT INTO shardway_history VALUES (1, 1297260891270280536, 1796000523000004, 3887715960413257351, 'customers', 'add', 2, 'anna', 'why ''so''', 'some \\ mappings', 2, x'0102087ffffffffffffffb08800000000000000008802000000000000000')

INSERT INTO shardway_history VALUES (2, 3240031070990602995, 1796000523000004, 3887715960413257351, 'customers', 'add', 3, 'recover', '', '', 0, x'0100')

INSERT INTO shardway_history VALUES (3, 8823716318634231471, 1796000523000004, 4245666417515953036, 'tenants ü', 'add', 2, 'anna', 'why ''so''', 'some \\ mappings', 2, x'010410010203000000000000000000000000000010ff00000000000000000000000000000000')

INSERT INTO shardway_history VALUES (4, 8907358687711263480, 1796000523000004, 4245666417515953036, 'tenants ü', 'add', 3, 'recover', '', '', 0, x'0100')

INSERT INTO shardway_history VALUES (5, 3725410386262419530, 1796000523000004, 545116381575717744, 'words', 'add', 2, 'anna', 'why ''so''', 'some \\ mappings', 2, x'01050200010c6127625c6300ffc3bcff00010c6127625c6300ffc3bcff000100')

INSERT INTO shardway_history VALUES (6, 2141081706168905537, 1796000523000004, 545116381575717744, 'words', 'add', 3, 'recover', '', '', 0, x'0100')

INSERT INTO shardway_local_store VALUES (1, 'DRKCSZNZZYKWLP7ZIELLWPH5AN', 1, 0, 0)

INSERT INTO shardway_local_shard_maps VALUES (3887715960413257351, 'customers', 2, 2)

INSERT INTO shardway_local_shard_maps VALUES (4245666417515953036, 'tenants ü', 1, 4)

INSERT INTO shardway_local_shard_maps VALUES (545116381575717744, 'words', 2, 5)

INSERT INTO shardway_local_shards VALUES (3887715960413257351, 7581502148527639394, 'eu1 ''quoted''', 'postgres', 'tenants', '[{"address":"db1.example:5432","tags":{"zone":"a"}},{"address":"[::1]:5432"}]', 0, 3169635188819260060)

INSERT INTO shardway_local_shards VALUES (4245666417515953036, 282100642270857540, 'eu1 ''quoted''', 'postgres', 'tenants', '[{"address":"db1.example:5432","tags":{"zone":"a"}},{"address":"[::1]:5432"}]', 0, 5043860045726244518)

INSERT INTO shardway_local_shards VALUES (545116381575717744, 4404303939100627133, 'eu1 ''quoted''', 'postgres', 'tenants', '[{"address":"db1.example:5432","tags":{"zone":"a"}},{"address":"[::1]:5432"}]', 0, 476424943768763692)

INSERT INTO shardway_local_mappings VALUES (1517252644980004314, 3887715960413257351, x'7ffffffffffffffb', x'8000000000000000', 7581502148527639394, 0)

INSERT INTO shardway_local_mappings VALUES (2182538931045653872, 545116381575717744, x'0001', x'6127625c6300ffc3bcff0001', 4404303939100627133, 0)

INSERT INTO shardway_local_mappings VALUES (4042589756961006166, 3887715960413257351, x'8020000000000000', NULL, 7581502148527639394, 1)

INSERT INTO shardway_local_mappings VALUES (4767290922693184087, 4245666417515953036, x'ff000000000000000000000000000000', NULL, 282100642270857540, 1)

INSERT INTO shardway_local_mappings VALUES (5248051219276087099, 4245666417515953036, x'01020300000000000000000000000000', NULL, 282100642270857540, 0)

INSERT INTO shardway_local_mappings VALUES (8190623889206127063, 545116381575717744, x'6127625c6300ffc3bcff0001', NULL, 4404303939100627133, 1)

INSERT INTO shardway_local_operations VALUES (1297260891270280536, 1, 1, 2)

INSERT INTO shardway_local_operations VALUES (1879867315328572535, 8, 1, 1)

INSERT INTO shardway_local_operations VALUES (2058550655665350416, 5, 1, 1)

INSERT INTO shardway_local_operations VALUES (2141081706168905537, 9, 1, 3)

INSERT INTO shardway_local_operations VALUES (3240031070990602995, 3, 1, 3)

INSERT INTO shardway_local_operations VALUES (3725410386262419530, 7, 1, 2)

INSERT INTO shardway_local_operations VALUES (6598815748951582182, 2, 1, 1)

INSERT INTO shardway_local_operations VALUES (8823716318634231471, 4, 1, 2)

INSERT INTO shardway_local_operations VALUES (8907358687711263480, 6, 1, 3)
