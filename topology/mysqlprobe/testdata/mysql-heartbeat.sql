SELECT VERSION(), CURRENT_USER(), @@global.read_only OR @@global.super_read_only, @@global.innodb_read_only, @@global.transaction_read_only, (SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - beat_at FROM `ops`.`be``at` WHERE id = 1), (SELECT term FROM `ops`.`be``at` WHERE id = 1),
  c.host, c.port, s.service_state, a.service_state,
  IF(s.received_transaction_set = '', NULL, GTID_SUBSET(s.received_transaction_set, @@global.gtid_executed)),
  (SELECT TIMESTAMPDIFF(MICROSECOND, MIN(w.applying_transaction_original_commit_timestamp), NOW(6))
   FROM performance_schema.replication_applier_status_by_worker w
   WHERE w.channel_name = c.channel_name AND w.applying_transaction <> ''),
  (SELECT TIMESTAMPDIFF(MICROSECOND, MAX(w.last_applied_transaction_original_commit_timestamp), NOW(6))
   FROM performance_schema.replication_applier_status_by_worker w
   WHERE w.channel_name = c.channel_name AND w.last_applied_transaction <> '')
FROM (SELECT 1 AS one) o
LEFT JOIN performance_schema.replication_connection_configuration c ON TRUE
LEFT JOIN performance_schema.replication_connection_status s ON s.channel_name = c.channel_name
LEFT JOIN performance_schema.replication_applier_status a ON a.channel_name = c.channel_name
