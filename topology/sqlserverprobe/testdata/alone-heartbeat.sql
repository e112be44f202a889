SELECT CAST(SERVERPROPERTY('EngineEdition') AS int), CAST(COALESCE(SERVERPROPERTY('IsHadrEnabled'), 0) AS int)

SELECT CAST(SERVERPROPERTY('ProductVersion') AS nvarchar(128)), SUSER_SNAME(),
  CAST(DATABASEPROPERTYEX(DB_NAME(), 'Status') AS nvarchar(128)), CAST(DATABASEPROPERTYEX(DB_NAME(), 'Updateability') AS nvarchar(128)),
  (SELECT DATEDIFF_BIG(microsecond, '1970-01-01', SYSUTCDATETIME()) - beat_at FROM [shardway].[heartbeat] WHERE id = 1), (SELECT term FROM [shardway].[heartbeat] WHERE id = 1)
