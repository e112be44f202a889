SELECT CAST(SERVERPROPERTY('EngineEdition') AS int), CAST(COALESCE(SERVERPROPERTY('IsHadrEnabled'), 0) AS int)

SELECT CAST(SERVERPROPERTY('ProductVersion') AS nvarchar(128)), SUSER_SNAME(),
  CAST(DATABASEPROPERTYEX(DB_NAME(), 'Status') AS nvarchar(128)), CAST(DATABASEPROPERTYEX(DB_NAME(), 'Updateability') AS nvarchar(128)),
  (SELECT DATEDIFF_BIG(microsecond, '1970-01-01', SYSUTCDATETIME()) - beat_at FROM [shardway].[heartbeat] WHERE id = 1), (SELECT term FROM [shardway].[heartbeat] WHERE id = 1),
  CAST(r.is_primary_replica AS int), CAST(r.is_suspended AS int), r.synchronization_state_desc, r.redo_queue_size,
  DATEDIFF_BIG(microsecond, r.last_commit_time, GETDATE())
FROM (SELECT 1 AS one) o
LEFT JOIN sys.dm_hadr_database_replica_states r ON r.is_local = 1 AND r.database_id = DB_ID();
BEGIN TRY
  SELECT a.read_only_routing_url FROM sys.availability_replicas a
  WHERE a.read_only_routing_url IS NOT NULL AND a.replica_server_name <> @@SERVERNAME
    AND a.group_id IN (SELECT r.group_id FROM sys.dm_hadr_database_replica_states r WHERE r.is_local = 1 AND r.database_id = DB_ID());
END TRY
BEGIN CATCH
END CATCH
