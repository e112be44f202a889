SET SESSION lock_wait_timeout = 2

SET @shardway_step = (SELECT IF(COUNT(*) = 0, 'CREATE INDEX local_operations_by_state ON shardway_local_operations (state, seq)', 'DO 0')
FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 'shardway_local_operations' AND index_name = 'local_operations_by_state')

PREPARE shardway_step FROM @shardway_step

EXECUTE shardway_step

SET @shardway_step = (SELECT IF(COUNT(*) > 0, 'DROP INDEX local_operations_not_applied ON shardway_local_operations', 'DO 0')
FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 'shardway_local_operations' AND index_name = 'local_operations_not_applied')

PREPARE shardway_step FROM @shardway_step

EXECUTE shardway_step

DEALLOCATE PREPARE shardway_step

SET SESSION lock_wait_timeout = DEFAULT
