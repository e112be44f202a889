package mysql

import (
	"database/sql/driver"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/topology"
	"github.com/shardway/shardway/topology/mysqlprobe"
)

// Prober returns a prober of one database's servers, for packages that choose
// among them. Its Close ends its connections.
func (e Engine) Prober(database string, c shardway.Credentials) (topology.Prober, error) {
	return mysqlprobe.New(func(address string) (driver.Connector, error) {
		return e.Connector(address, database, c)
	}, e.Probe)
}

// ShowReadOnly returns the connector for those who look at each error
// themselves: a server that takes no writes then says so, and not that the
// connection is bad. It sets rejectReadOnly to false, whatever the options say.
func (c *connector) ShowReadOnly() driver.Connector {
	config := c.config.Clone()
	config.RejectReadOnly = false
	return &connector{config: config, credentials: c.credentials}
}
