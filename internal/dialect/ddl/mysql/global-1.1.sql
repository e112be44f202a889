SET SESSION lock_wait_timeout = 2

SET @shardway_step = (SELECT IF(COUNT(*) = 0, 'CREATE INDEX mappings_by_token ON shardway_mappings (lock_token(16))', 'DO 0')
FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 'shardway_mappings' AND index_name = 'mappings_by_token')

PREPARE shardway_step FROM @shardway_step

EXECUTE shardway_step

DEALLOCATE PREPARE shardway_step

SET SESSION lock_wait_timeout = DEFAULT
