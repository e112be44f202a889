SET LOCK_TIMEOUT 2000

IF NOT EXISTS (SELECT 1 FROM sys.indexes WHERE name = 'mappings_by_token' AND object_id = OBJECT_ID('shardway.mappings'))
CREATE INDEX mappings_by_token ON shardway.mappings (lock_token) WHERE lock_token IS NOT NULL

SET LOCK_TIMEOUT -1
