SET LOCAL lock_timeout = '2s'

CREATE INDEX IF NOT EXISTS mappings_by_token ON shardway.mappings (lock_token) WHERE lock_token IS NOT NULL
