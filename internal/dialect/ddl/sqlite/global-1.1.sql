CREATE INDEX IF NOT EXISTS shardway_mappings_by_token ON shardway_mappings (lock_token) WHERE lock_token IS NOT NULL
