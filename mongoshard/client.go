package mongoshard

import (
	"context"
	"log/slog"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/xoptions"

	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

// Config says how a client selects servers. The zero value reads from the
// primary, or as the options' read preference says.
type Config struct {
	// Criteria are those of the client's reads. The zero Criteria are none: the
	// options' read preference holds, mode primary if they have none. Giving
	// both is an *OptionError.
	Criteria selection.Criteria
	// MongosForWrites applies a predicate also to the choice of the mongos for
	// writes and commands. In a replica set these use the primary, always.
	MongosForWrites bool
	// Logger receives "server selection" started, waiting, succeeded and failed
	// at debug level, with the deployment, the operation and the criteria; nil
	// means none. Selections that are left to the driver (docs/mongodb.md) are in
	// the driver's own log instead, and only those.
	Logger *slog.Logger
}

// Connect returns a client of the driver whose operations select servers by
// the criteria. Like the driver's Connect it does no I/O and starts monitoring;
// disconnect the client when it is no longer needed. The options are copied.
// Options that cannot be honored, or contradict the criteria, are an
// *OptionError, invalid criteria a *selection.InvalidError. ctx is only asked
// whether it has ended.
func Connect(ctx context.Context, opts *options.ClientOptions, config Config) (*mongo.Client, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	o, err := checkedOptions(opts)
	if err != nil {
		return nil, err
	}
	criteria, err := clientCriteria(o, config.Criteria)
	if err != nil {
		return nil, err
	}
	if err := criteria.Err(); err != nil {
		return nil, err
	}
	o.ReadPreference = marked()
	d, err := newDeployment(o, config.Logger)
	if err != nil {
		return nil, err
	}
	return d.client(newRule(criteria), config.MongosForWrites)
}

// With returns another client of the same deployment, with its own criteria:
// it shares the monitors, the pools and the in-flight counts of client. The
// deployment ends when the last of its clients is disconnected, in any order.
// Sessions of one client cannot be used with another. A client that was not
// made by this package is ErrForeignClient, a disconnected one
// mongo.ErrClientDisconnected.
func With(client *mongo.Client, criteria selection.Criteria) (*mongo.Client, error) {
	if err := criteria.Err(); err != nil {
		return nil, err
	}
	h, err := handleOf(client)
	if err != nil {
		return nil, err
	}
	return h.deployment.client(newRule(criteria), h.mongosForWrites)
}

// Servers returns what is known of a client's deployment now, as
// selection.Explain takes it. Errors are those of With.
func Servers(client *mongo.Client) (topology.Set, error) {
	h, err := handleOf(client)
	if err != nil {
		return topology.Set{}, err
	}
	v, _, err := h.deployment.look()
	if err != nil {
		return topology.Set{}, h.deployment.failed(err)
	}
	return v.set, nil
}

// client makes a client of the deployment.
func (d *deployment) client(r *rule, mongosForWrites bool) (*mongo.Client, error) {
	h := &handle{Topology: d.topology, deployment: d, rule: r, mongosForWrites: mongosForWrites}
	o := options.MergeClientOptions(options.Client(), d.options)
	if err := xoptions.SetInternalClientOptions(o, "deployment", h); err != nil {
		return nil, err
	}
	return mongo.Connect(o)
}

// handleOf finds a client's handle: it begins an operation whose context asks
// for it, and which ends there, without a word to any server. The context has
// ended, so that a foreign client sends nothing either.
func handleOf(client *mongo.Client) (*handle, error) {
	if client == nil {
		return nil, ErrForeignClient
	}
	asked := new(question)
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), contextKey{}, asked))
	cancel()
	_ = client.Ping(ctx, nil) // its error says that it ended
	if asked.handle == nil {
		return nil, ErrForeignClient
	}
	if !asked.handle.connected.Load() {
		return nil, mongo.ErrClientDisconnected
	}
	return asked.handle, nil
}
