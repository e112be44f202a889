package mysqlprobe

import (
	"strings"

	"github.com/shardway/shardway/topology/probe"
)

// mariaDBText is one statement with up to three answers: SHOW cannot stand in a
// SELECT. The handler leaves those out to which a login has no right.
const mariaDBText = `BEGIN NOT ATOMIC
  DECLARE CONTINUE HANDLER FOR 1227 BEGIN END;
  SELECT VERSION(), CURRENT_USER(), @@global.read_only, @@global.innodb_read_only, @@global.{read_only}, {age}, {term};
  SHOW ALL SLAVES STATUS;
  SHOW SLAVE HOSTS;
END`

// mysqlText has one row for each channel, and one if there is none. Whom it
// knows as its replicas MySQL only tells by SHOW REPLICAS, which no SELECT can
// hold and which would be a second round trip.
const mysqlText = `SELECT VERSION(), CURRENT_USER(), @@global.read_only OR @@global.super_read_only, @@global.innodb_read_only, @@global.transaction_read_only, {age}, {term},
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
LEFT JOIN performance_schema.replication_applier_status a ON a.channel_name = c.channel_name`

// mysqlPlain is for a login that may not see replication.
const mysqlPlain = `SELECT VERSION(), CURRENT_USER(), @@global.read_only OR @@global.super_read_only, @@global.innodb_read_only, @@global.transaction_read_only, {age}, {term}`

// replicationTables are what mysqlText reads.
var replicationTables = []string{
	"replication_connection_configuration", "replication_connection_status",
	"replication_applier_status", "replication_applier_status_by_worker",
}

// text is what to ask a server of a variant.
func text(variant int, h probe.Heartbeat, replication bool) string {
	t, readOnly := mysqlPlain, ""
	switch {
	case variant == mariaDB:
		t, readOnly = mariaDBText, "tx_read_only"
	case variant == mariaDB11:
		t, readOnly = mariaDBText, "transaction_read_only"
	case replication:
		t = mysqlText
	}
	return strings.NewReplacer("{read_only}", readOnly, "{age}", h.Age(), "{term}", h.Term()).Replace(t)
}
