SET LOCAL lock_timeout = '2s'

ALTER TABLE shardway.local_shards ADD COLUMN IF NOT EXISTS fence smallint CHECK (fence IS NULL)

ALTER TABLE shardway.local_mappings ADD COLUMN IF NOT EXISTS fence smallint CHECK (fence IS NULL)
