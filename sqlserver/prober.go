package sqlserver

import (
	"database/sql/driver"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/topology"
	"github.com/shardway/shardway/topology/sqlserverprobe"
)

// Prober returns a prober of one database's servers, for packages that choose
// among them. Its Close ends its connections.
func (e Engine) Prober(database string, c shardway.Credentials) (topology.Prober, error) {
	return sqlserverprobe.New(func(address string) (driver.Connector, error) {
		return e.Connector(address, database, c)
	}, e.Probe)
}
