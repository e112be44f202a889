package sqlite

import (
	"database/sql/driver"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/topology"
	"github.com/shardway/shardway/topology/sqliteprobe"
)

// Prober returns a prober of one database's servers, for packages that choose
// among them. Its Close ends its connections.
func (e Engine) Prober(database string, c shardway.Credentials) (topology.Prober, error) {
	return sqliteprobe.New(func(address string) (driver.Connector, error) {
		return e.Connector(address, database, c)
	}, e.Probe)
}
