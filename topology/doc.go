// Package topology describes the servers of one shard and keeps the
// description current.
//
// A Set is an immutable description of a replica set. It changes only by
// Apply, a pure function of a Set and an Observation; a Monitor probes every
// server and publishes each new Set. The package knows no keys, no shards, no
// drivers and no selection rules; engines supply a Prober and nothing else.
//
//	set, err := topology.NewSet(
//		topology.Config{Kind: topology.KindReplicaSet, DefaultPort: 5432},
//		[]topology.Server{{Address: "db1"}, {Address: "db2:5433"}},
//	)
//	monitor, err := topology.OpenMonitor(topology.MonitorConfig{Set: set, Prober: prober})
//	defer monitor.Close()
//	current, changed := monitor.Current()
package topology
