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
    version bigint NOT NULL
)

CREATE TABLE IF NOT EXISTS shardway.local_mappings (
    mapping_id bigint PRIMARY KEY,
    map_id bigint NOT NULL,
    low_key bytea NOT NULL,
    high_key bytea,
    shard_id bigint NOT NULL,
    status smallint NOT NULL,
    UNIQUE (map_id, low_key)
)

CREATE TABLE IF NOT EXISTS shardway.local_operations (
    op_id bigint PRIMARY KEY,
    seq bigint NOT NULL,
    epoch bigint NOT NULL,
    state smallint NOT NULL
)

CREATE INDEX IF NOT EXISTS local_operations_not_applied ON shardway.local_operations (seq) WHERE state <> 2

INSERT INTO shardway.store VALUES (1, 'OSDPQVACE6MH7H6H3DGABMOO7Y', 1, 0, 1796007830304689)

INSERT INTO shardway.counters VALUES (1, 9)

INSERT INTO shardway.shard_maps VALUES (2936799638298894840, 'tenants ü', 1, 4, 2)

INSERT INTO shardway.shard_maps VALUES (391649470325192446, 'empty', 2, 2, 1)

INSERT INTO shardway.shard_maps VALUES (5845382216775122302, 'customers', 2, 2, 2)

INSERT INTO shardway.shard_maps VALUES (8891008811155192393, 'words', 2, 5, 2)

INSERT INTO shardway.shards VALUES (3165596688280234000, 8891008811155192393, 'eu1 ''quoted''', 'postgres', 'tenants', '[{"address":"db1.example:5432","tags":{"zone":"a"}},{"address":"[::1]:5432"}]', 0, 3599197098010174451, 0, 0)

INSERT INTO shardway.shards VALUES (3314583913470558008, 2936799638298894840, 'eu1 ''quoted''', 'postgres', 'tenants', '[{"address":"db1.example:5432","tags":{"zone":"a"}},{"address":"[::1]:5432"}]', 0, 2545389624254763349, 0, 0)

INSERT INTO shardway.shards VALUES (3954902604470165313, 5845382216775122302, 'eu1 ''quoted''', 'postgres', 'tenants', '[{"address":"db1.example:5432","tags":{"zone":"a"}},{"address":"[::1]:5432"}]', 0, 4399061518760224832, 0, 0)

INSERT INTO shardway.mappings VALUES (1571464783539781105, 8891008811155192393, '\x0001', '\x6127625c6300ffc3bcff0001', 3165596688280234000, 0, 8971381403412978246, '\x73656372657420ff20746f6b656e', 'mover', 'moves', 2082855845000006)

INSERT INTO shardway.mappings VALUES (1855503247449302524, 2936799638298894840, '\x01020300000000000000000000000000', NULL, 3314583913470558008, 0, 4892888705277689818, '\x73656372657420ff20746f6b656e', 'mover', 'moves', 2082855845000006)

INSERT INTO shardway.mappings VALUES (434058401254454618, 5845382216775122302, '\x7ffffffffffffffb', '\x8000000000000000', 3954902604470165313, 0, 9117383257952507400, '\x73656372657420ff20746f6b656e', 'mover', 'moves', 2082855845000006)

INSERT INTO shardway.mappings VALUES (4617772760711903334, 8891008811155192393, '\x6127625c6300ffc3bcff0001', NULL, 3165596688280234000, 1, 0, NULL, '', '', 0)

INSERT INTO shardway.mappings VALUES (5959256444795784089, 5845382216775122302, '\x8020000000000000', NULL, 3954902604470165313, 1, 0, NULL, '', '', 0)

INSERT INTO shardway.mappings VALUES (8980824509979201640, 2936799638298894840, '\xff000000000000000000000000000000', NULL, 3314583913470558008, 1, 0, NULL, '', '', 0)

INSERT INTO shardway.pending_mappings VALUES (1069722191064034643, 8891008811155192393, '\x0001', '\x6127625c6300ffc3bcff0001', 3165596688280234000, 1, 8971381403412978246, '\x73656372657420ff20746f6b656e', 'mover', 'moves', 2082855845000006)

INSERT INTO shardway.pending_mappings VALUES (3852037760758815712, 2936799638298894840, '\x01020300000000000000000000000000', NULL, 3314583913470558008, 1, 4892888705277689818, '\x73656372657420ff20746f6b656e', 'mover', 'moves', 2082855845000006)

INSERT INTO shardway.pending_mappings VALUES (6580801181302500973, 5845382216775122302, '\x7ffffffffffffffb', '\x8000000000000000', 3954902604470165313, 1, 9117383257952507400, '\x73656372657420ff20746f6b656e', 'mover', 'moves', 2082855845000006)

INSERT INTO shardway.operations VALUES (4892888705277689818, 5, 2936799638298894840, 'add', 'anna', 'why ''so''', 'some \ mappings', 1796000523000004, 1, 'anna/1', 1796000580000000)

INSERT INTO shardway.operations VALUES (8971381403412978246, 8, 8891008811155192393, 'add', 'anna', 'why ''so''', 'some \ mappings', 1796000523000004, 1, 'anna/1', 1796000580000000)

INSERT INTO shardway.operations VALUES (9117383257952507400, 2, 5845382216775122302, 'add', 'anna', 'why ''so''', 'some \ mappings', 1796000523000004, 1, 'anna/1', 1796000580000000)

INSERT INTO shardway.operation_parts VALUES (4892888705277689818, 0, '{"v":1,"map":{"id":"28c19bb6114d21f8","name":"tenants ü","kind":1,"key_kind":"uuid","generation":0},"steps":[{"shard":{"id":"2dffc48204a2ff38","map_id":"28c19bb6114d21f8","name":"eu1 ''quoted''","engine":"postgres","database":"tenants","servers":[{"address":"db1.example:5432","tags":{"zone":"a"}},{"address":"[::1]:5432"}],"status":0,"version":"23530a6090ab9155"},"remove":[{"id":"19c0125f67cca5fc","low":"01020300000000000000000000000000","shard_id":"2dffc48204a2ff38","status":0,"lock":{"token":"secret \ufffd token","owner":"mover","reason":"moves","expires":"2036-01-02T03:04:05.000006Z"}}],"add":[{"id":"35752fef376b9be0","low":"01020300000000000000000000000000","shard_id":"2dffc48204a2ff38","status":1,"lock":{"token":"secret \ufffd token","owner":"mover","reason":"moves","expires":"2036-01-02T03:04:05.000006Z"}}]}]}')

INSERT INTO shardway.operation_parts VALUES (8971381403412978246, 0, '{"v":1,"map":{"id":"7b6335683bc5fa49","name":"words","kind":2,"key_kind":"string","generation":0},"steps":[{"shard":{"id":"2bee756a7b18a810","map_id":"7b6335683bc5fa49","name":"eu1 ''quoted''","engine":"postgres","database":"tenants","servers":[{"address":"db1.example:5432","tags":{"zone":"a"}},{"address":"[::1]:5432"}],"status":0,"version":"31f2eab0f78363f3"},"remove":[{"id":"15cef6e507ecbdf1","low":"0001","high":"6127625c6300ffc3bcff0001","shard_id":"2bee756a7b18a810","status":0,"lock":{"token":"secret \ufffd token","owner":"mover","reason":"moves","expires":"2036-01-02T03:04:05.000006Z"}}],"add":[{"id":"0ed86aaa46b96d53","low":"0001","high":"6127625c6300ffc3bcff0001","shard_id":"2bee756a7b18a810","status":1,"lock":{"token":"secret \ufffd token","owner":"mover","reason":"moves","expires":"2036-01-02T03:04:05.000006Z"}}]}]}')

INSERT INTO shardway.operation_parts VALUES (9117383257952507400, 0, '{"v":1,"map":{"id":"511ef827ef443d7e","name":"customers","kind":2,"key_kind":"int64","generation":0},"steps":[{"shard":{"id":"36e2a2f6fcb61f41","map_id":"511ef827ef443d7e","name":"eu1 ''quoted''","engine":"postgres","database":"tenants","servers":[{"address":"db1.example:5432","tags":{"zone":"a"}},{"address":"[::1]:5432"}],"status":0,"version":"3d0c9b24e2cb2840"},"remove":[{"id":"060615d0f28bb55a","low":"7ffffffffffffffb","high":"8000000000000000","shard_id":"36e2a2f6fcb61f41","status":0,"lock":{"token":"secret \ufffd token","owner":"mover","reason":"moves","expires":"2036-01-02T03:04:05.000006Z"}}],"add":[{"id":"5b53b3cecd01ae6d","low":"7ffffffffffffffb","high":"8000000000000000","shard_id":"36e2a2f6fcb61f41","status":1,"lock":{"token":"secret \ufffd token","owner":"mover","reason":"moves","expires":"2036-01-02T03:04:05.000006Z"}}]}]}')

INSERT INTO shardway.history OVERRIDING SYSTEM VALUE VALUES (1, 616498434789096937, 1796000523000004, 5845382216775122302, 'customers', 'add', 2, 'anna', 'why ''so''', 'some \ mappings', 2, '\x0102087ffffffffffffffb08800000000000000008802000000000000000')

INSERT INTO shardway.history OVERRIDING SYSTEM VALUE VALUES (2, 3239026600645157926, 1796000523000004, 5845382216775122302, 'customers', 'add', 3, 'recover', '', '', 0, '\x0100')

INSERT INTO shardway.history OVERRIDING SYSTEM VALUE VALUES (3, 6361144521655523742, 1796000523000004, 2936799638298894840, 'tenants ü', 'add', 2, 'anna', 'why ''so''', 'some \ mappings', 2, '\x010410010203000000000000000000000000000010ff00000000000000000000000000000000')

INSERT INTO shardway.history OVERRIDING SYSTEM VALUE VALUES (4, 6936017629783773576, 1796000523000004, 2936799638298894840, 'tenants ü', 'add', 3, 'recover', '', '', 0, '\x0100')

INSERT INTO shardway.history OVERRIDING SYSTEM VALUE VALUES (5, 3803971414238891019, 1796000523000004, 8891008811155192393, 'words', 'add', 2, 'anna', 'why ''so''', 'some \ mappings', 2, '\x01050200010c6127625c6300ffc3bcff00010c6127625c6300ffc3bcff000100')

INSERT INTO shardway.history OVERRIDING SYSTEM VALUE VALUES (6, 206219590960686491, 1796000523000004, 8891008811155192393, 'words', 'add', 3, 'recover', '', '', 0, '\x0100')

INSERT INTO shardway.local_store VALUES (1, 'OSDPQVACE6MH7H6H3DGABMOO7Y', 1, 0, 0)

INSERT INTO shardway.local_shard_maps VALUES (2936799638298894840, 'tenants ü', 1, 4)

INSERT INTO shardway.local_shard_maps VALUES (5845382216775122302, 'customers', 2, 2)

INSERT INTO shardway.local_shard_maps VALUES (8891008811155192393, 'words', 2, 5)

INSERT INTO shardway.local_shards VALUES (2936799638298894840, 3314583913470558008, 'eu1 ''quoted''', 'postgres', 'tenants', '[{"address":"db1.example:5432","tags":{"zone":"a"}},{"address":"[::1]:5432"}]', 0, 2545389624254763349)

INSERT INTO shardway.local_shards VALUES (5845382216775122302, 3954902604470165313, 'eu1 ''quoted''', 'postgres', 'tenants', '[{"address":"db1.example:5432","tags":{"zone":"a"}},{"address":"[::1]:5432"}]', 0, 4399061518760224832)

INSERT INTO shardway.local_shards VALUES (8891008811155192393, 3165596688280234000, 'eu1 ''quoted''', 'postgres', 'tenants', '[{"address":"db1.example:5432","tags":{"zone":"a"}},{"address":"[::1]:5432"}]', 0, 3599197098010174451)

INSERT INTO shardway.local_mappings VALUES (1571464783539781105, 8891008811155192393, '\x0001', '\x6127625c6300ffc3bcff0001', 3165596688280234000, 0)

INSERT INTO shardway.local_mappings VALUES (1855503247449302524, 2936799638298894840, '\x01020300000000000000000000000000', NULL, 3314583913470558008, 0)

INSERT INTO shardway.local_mappings VALUES (434058401254454618, 5845382216775122302, '\x7ffffffffffffffb', '\x8000000000000000', 3954902604470165313, 0)

INSERT INTO shardway.local_mappings VALUES (4617772760711903334, 8891008811155192393, '\x6127625c6300ffc3bcff0001', NULL, 3165596688280234000, 1)

INSERT INTO shardway.local_mappings VALUES (5959256444795784089, 5845382216775122302, '\x8020000000000000', NULL, 3954902604470165313, 1)

INSERT INTO shardway.local_mappings VALUES (8980824509979201640, 2936799638298894840, '\xff000000000000000000000000000000', NULL, 3314583913470558008, 1)

INSERT INTO shardway.local_operations VALUES (206219590960686491, 9, 1, 3)

INSERT INTO shardway.local_operations VALUES (3239026600645157926, 3, 1, 3)

INSERT INTO shardway.local_operations VALUES (3803971414238891019, 7, 1, 2)

INSERT INTO shardway.local_operations VALUES (4892888705277689818, 5, 1, 1)

INSERT INTO shardway.local_operations VALUES (616498434789096937, 1, 1, 2)

INSERT INTO shardway.local_operations VALUES (6361144521655523742, 4, 1, 2)

INSERT INTO shardway.local_operations VALUES (6936017629783773576, 6, 1, 3)

INSERT INTO shardway.local_operations VALUES (8971381403412978246, 8, 1, 1)

INSERT INTO shardway.local_operations VALUES (9117383257952507400, 2, 1, 1)

SELECT setval(pg_get_serial_sequence('shardway.history', 'entry_id'), (SELECT max(entry_id) FROM shardway.history))
