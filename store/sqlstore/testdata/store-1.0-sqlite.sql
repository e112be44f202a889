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

INSERT INTO shardway_store VALUES (1, 'TBI6KZFLJHML6QR475WXF5IANV', 1, 0, 1796007829814000)

INSERT INTO shardway_counters VALUES (1, 9)

INSERT INTO shardway_shard_maps VALUES (3038683892698227787, 'tenants ü', 1, 4, 2)

INSERT INTO shardway_shard_maps VALUES (3665206445612442652, 'empty', 2, 2, 1)

INSERT INTO shardway_shard_maps VALUES (5331576588286863040, 'words', 2, 5, 2)

INSERT INTO shardway_shard_maps VALUES (8253095059083939144, 'customers', 2, 2, 2)

INSERT INTO shardway_shards VALUES (2402335129656782273, 8253095059083939144, 'eu1 ''quoted''', 'postgres', 'tenants', '[{"address":"db1.example:5432","tags":{"zone":"a"}},{"address":"[::1]:5432"}]', 0, 5420711622677746911, 0, 0)

INSERT INTO shardway_shards VALUES (411073484892891433, 3038683892698227787, 'eu1 ''quoted''', 'postgres', 'tenants', '[{"address":"db1.example:5432","tags":{"zone":"a"}},{"address":"[::1]:5432"}]', 0, 7095865343320002219, 0, 0)

INSERT INTO shardway_shards VALUES (7063616046862896601, 5331576588286863040, 'eu1 ''quoted''', 'postgres', 'tenants', '[{"address":"db1.example:5432","tags":{"zone":"a"}},{"address":"[::1]:5432"}]', 0, 2123514304182222886, 0, 0)

INSERT INTO shardway_mappings VALUES (2627994795524553494, 3038683892698227787, x'ff000000000000000000000000000000', NULL, 411073484892891433, 1, 0, NULL, '', '', 0)

INSERT INTO shardway_mappings VALUES (2905754986850038866, 5331576588286863040, x'6127625c6300ffc3bcff0001', NULL, 7063616046862896601, 1, 0, NULL, '', '', 0)

INSERT INTO shardway_mappings VALUES (3398698181132143572, 8253095059083939144, x'8020000000000000', NULL, 2402335129656782273, 1, 0, NULL, '', '', 0)

INSERT INTO shardway_mappings VALUES (5062894277271955024, 3038683892698227787, x'01020300000000000000000000000000', NULL, 411073484892891433, 0, 6781206874190550534, x'73656372657420ff20746f6b656e', 'mover', 'moves', 2082855845000006)

INSERT INTO shardway_mappings VALUES (5577079614001901266, 8253095059083939144, x'7ffffffffffffffb', x'8000000000000000', 2402335129656782273, 0, 1192629957121473446, x'73656372657420ff20746f6b656e', 'mover', 'moves', 2082855845000006)

INSERT INTO shardway_mappings VALUES (9063571550107476317, 5331576588286863040, x'0001', x'6127625c6300ffc3bcff0001', 7063616046862896601, 0, 6177995996875514438, x'73656372657420ff20746f6b656e', 'mover', 'moves', 2082855845000006)

INSERT INTO shardway_pending_mappings VALUES (236565183691517147, 3038683892698227787, x'01020300000000000000000000000000', NULL, 411073484892891433, 1, 6781206874190550534, x'73656372657420ff20746f6b656e', 'mover', 'moves', 2082855845000006)

INSERT INTO shardway_pending_mappings VALUES (2697398755437155312, 5331576588286863040, x'0001', x'6127625c6300ffc3bcff0001', 7063616046862896601, 1, 6177995996875514438, x'73656372657420ff20746f6b656e', 'mover', 'moves', 2082855845000006)

INSERT INTO shardway_pending_mappings VALUES (4993793486009796135, 8253095059083939144, x'7ffffffffffffffb', x'8000000000000000', 2402335129656782273, 1, 1192629957121473446, x'73656372657420ff20746f6b656e', 'mover', 'moves', 2082855845000006)

INSERT INTO shardway_operations VALUES (1192629957121473446, 2, 8253095059083939144, 'add', 'anna', 'why ''so''', 'some \ mappings', 1796000523000004, 1, 'anna/1', 1796000580000000)

INSERT INTO shardway_operations VALUES (6177995996875514438, 8, 5331576588286863040, 'add', 'anna', 'why ''so''', 'some \ mappings', 1796000523000004, 1, 'anna/1', 1796000580000000)

INSERT INTO shardway_operations VALUES (6781206874190550534, 5, 3038683892698227787, 'add', 'anna', 'why ''so''', 'some \ mappings', 1796000523000004, 1, 'anna/1', 1796000580000000)

INSERT INTO shardway_operation_parts VALUES (1192629957121473446, 0, '{"v":1,"map":{"id":"7288e23abe3acd48","name":"customers","kind":2,"key_kind":"int64","generation":0},"steps":[{"shard":{"id":"2156cf1282a26dc1","map_id":"7288e23abe3acd48","name":"eu1 ''quoted''","engine":"postgres","database":"tenants","servers":[{"address":"db1.example:5432","tags":{"zone":"a"}},{"address":"[::1]:5432"}],"status":0,"version":"4b3a3c802b89d4df"},"remove":[{"id":"4d65c45c3ca7eed2","low":"7ffffffffffffffb","high":"8000000000000000","shard_id":"2156cf1282a26dc1","status":0,"lock":{"token":"secret \ufffd token","owner":"mover","reason":"moves","expires":"2036-01-02T03:04:05.000006Z"}}],"add":[{"id":"454d84b79f460627","low":"7ffffffffffffffb","high":"8000000000000000","shard_id":"2156cf1282a26dc1","status":1,"lock":{"token":"secret \ufffd token","owner":"mover","reason":"moves","expires":"2036-01-02T03:04:05.000006Z"}}]}]}')

INSERT INTO shardway_operation_parts VALUES (6177995996875514438, 0, '{"v":1,"map":{"id":"49fd90a8bda0a6c0","name":"words","kind":2,"key_kind":"string","generation":0},"steps":[{"shard":{"id":"6207015eb7030dd9","map_id":"49fd90a8bda0a6c0","name":"eu1 ''quoted''","engine":"postgres","database":"tenants","servers":[{"address":"db1.example:5432","tags":{"zone":"a"}},{"address":"[::1]:5432"}],"status":0,"version":"1d783d02403e0026"},"remove":[{"id":"7dc8464dd07e215d","low":"0001","high":"6127625c6300ffc3bcff0001","shard_id":"6207015eb7030dd9","status":0,"lock":{"token":"secret \ufffd token","owner":"mover","reason":"moves","expires":"2036-01-02T03:04:05.000006Z"}}],"add":[{"id":"256f15e06b6993f0","low":"0001","high":"6127625c6300ffc3bcff0001","shard_id":"6207015eb7030dd9","status":1,"lock":{"token":"secret \ufffd token","owner":"mover","reason":"moves","expires":"2036-01-02T03:04:05.000006Z"}}]}]}')

INSERT INTO shardway_operation_parts VALUES (6781206874190550534, 0, '{"v":1,"map":{"id":"2a2b92e698faa44b","name":"tenants ü","kind":1,"key_kind":"uuid","generation":0},"steps":[{"shard":{"id":"05b46d28139f6929","map_id":"2a2b92e698faa44b","name":"eu1 ''quoted''","engine":"postgres","database":"tenants","servers":[{"address":"db1.example:5432","tags":{"zone":"a"}},{"address":"[::1]:5432"}],"status":0,"version":"627993ef2a980eab"},"remove":[{"id":"4643038554272650","low":"01020300000000000000000000000000","shard_id":"05b46d28139f6929","status":0,"lock":{"token":"secret \ufffd token","owner":"mover","reason":"moves","expires":"2036-01-02T03:04:05.000006Z"}}],"add":[{"id":"034872c7fc286cdb","low":"01020300000000000000000000000000","shard_id":"05b46d28139f6929","status":1,"lock":{"token":"secret \ufffd token","owner":"mover","reason":"moves","expires":"2036-01-02T03:04:05.000006Z"}}]}]}')

INSERT INTO shardway_history VALUES (1, 6947384814176119611, 1796000523000004, 8253095059083939144, 'customers', 'add', 2, 'anna', 'why ''so''', 'some \ mappings', 2, x'0102087ffffffffffffffb08800000000000000008802000000000000000')

INSERT INTO shardway_history VALUES (2, 6040717239315088734, 1796000523000004, 8253095059083939144, 'customers', 'add', 3, 'recover', '', '', 0, x'0100')

INSERT INTO shardway_history VALUES (3, 5198232508789866978, 1796000523000004, 3038683892698227787, 'tenants ü', 'add', 2, 'anna', 'why ''so''', 'some \ mappings', 2, x'010410010203000000000000000000000000000010ff00000000000000000000000000000000')

INSERT INTO shardway_history VALUES (4, 4893140021176183035, 1796000523000004, 3038683892698227787, 'tenants ü', 'add', 3, 'recover', '', '', 0, x'0100')

INSERT INTO shardway_history VALUES (5, 7710649769682066060, 1796000523000004, 5331576588286863040, 'words', 'add', 2, 'anna', 'why ''so''', 'some \ mappings', 2, x'01050200010c6127625c6300ffc3bcff00010c6127625c6300ffc3bcff000100')

INSERT INTO shardway_history VALUES (6, 843247636100677280, 1796000523000004, 5331576588286863040, 'words', 'add', 3, 'recover', '', '', 0, x'0100')

INSERT INTO shardway_local_store VALUES (1, 'TBI6KZFLJHML6QR475WXF5IANV', 1, 0, 0)

INSERT INTO shardway_local_shard_maps VALUES (3038683892698227787, 'tenants ü', 1, 4)

INSERT INTO shardway_local_shard_maps VALUES (5331576588286863040, 'words', 2, 5)

INSERT INTO shardway_local_shard_maps VALUES (8253095059083939144, 'customers', 2, 2)

INSERT INTO shardway_local_shards VALUES (3038683892698227787, 411073484892891433, 'eu1 ''quoted''', 'postgres', 'tenants', '[{"address":"db1.example:5432","tags":{"zone":"a"}},{"address":"[::1]:5432"}]', 0, 7095865343320002219)

INSERT INTO shardway_local_shards VALUES (5331576588286863040, 7063616046862896601, 'eu1 ''quoted''', 'postgres', 'tenants', '[{"address":"db1.example:5432","tags":{"zone":"a"}},{"address":"[::1]:5432"}]', 0, 2123514304182222886)

INSERT INTO shardway_local_shards VALUES (8253095059083939144, 2402335129656782273, 'eu1 ''quoted''', 'postgres', 'tenants', '[{"address":"db1.example:5432","tags":{"zone":"a"}},{"address":"[::1]:5432"}]', 0, 5420711622677746911)

INSERT INTO shardway_local_mappings VALUES (2627994795524553494, 3038683892698227787, x'ff000000000000000000000000000000', NULL, 411073484892891433, 1)

INSERT INTO shardway_local_mappings VALUES (2905754986850038866, 5331576588286863040, x'6127625c6300ffc3bcff0001', NULL, 7063616046862896601, 1)

INSERT INTO shardway_local_mappings VALUES (3398698181132143572, 8253095059083939144, x'8020000000000000', NULL, 2402335129656782273, 1)

INSERT INTO shardway_local_mappings VALUES (5062894277271955024, 3038683892698227787, x'01020300000000000000000000000000', NULL, 411073484892891433, 0)

INSERT INTO shardway_local_mappings VALUES (5577079614001901266, 8253095059083939144, x'7ffffffffffffffb', x'8000000000000000', 2402335129656782273, 0)

INSERT INTO shardway_local_mappings VALUES (9063571550107476317, 5331576588286863040, x'0001', x'6127625c6300ffc3bcff0001', 7063616046862896601, 0)

INSERT INTO shardway_local_operations VALUES (1192629957121473446, 2, 1, 1)

INSERT INTO shardway_local_operations VALUES (4893140021176183035, 6, 1, 3)

INSERT INTO shardway_local_operations VALUES (5198232508789866978, 4, 1, 2)

INSERT INTO shardway_local_operations VALUES (6040717239315088734, 3, 1, 3)

INSERT INTO shardway_local_operations VALUES (6177995996875514438, 8, 1, 1)

INSERT INTO shardway_local_operations VALUES (6781206874190550534, 5, 1, 1)

INSERT INTO shardway_local_operations VALUES (6947384814176119611, 1, 1, 2)

INSERT INTO shardway_local_operations VALUES (7710649769682066060, 7, 1, 2)

INSERT INTO shardway_local_operations VALUES (843247636100677280, 9, 1, 3)
