package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardway/shardway/mongoshard"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

// deploymentView is the JSON form of a MongoDB deployment and a choice in it.
type deploymentView struct {
	Deployment string `json:"deployment"` // hosts and replica set, without secrets
	Kind       string `json:"kind"`       // MongoDB's topology type
	choiceView
	Note string `json:"note,omitempty"`
}

func mongoCommand(a *app) *cobra.Command {
	return group("mongo", "Look at MongoDB deployments as an application's client does",
		"Commands for MongoDB deployments, by the official driver. They need no global store.", mongoExplainCommand(a))
}

func mongoExplainCommand(a *app) *cobra.Command {
	var f criteriaFlags
	var uri string
	c := &cobra.Command{
		Use: "explain --uri URI", Short: "Show which servers of a MongoDB deployment suit, are in the latency window, and would be chosen", Args: arguments(),
		Long: "Connects to a deployment with the options of the URI and shows what a read would do there:\n" +
			"for every server its role, tags, round trip and estimated staleness, and the step that\n" +
			"dropped it, or that it was chosen. Only monitoring connections are made; nothing is read.\n" +
			"The read preference of the URI counts where no flag says otherwise; both are refused.\n" +
			"Servers have serverSelectionTimeoutMS of the URI to answer, 10 s without it.\n" +
			"A URI with a password stays out of the command line when SHARDWAY_MONGODB_URI holds it.\n" +
			"Behind a load balancer there is nothing to choose, so no criteria are asked.\n" +
			"The exit code is 5 when no server suits, and the message says why for each of them.\n\n" + criteriaHelp,
		Example: example("shardway mongo explain --uri 'mongodb://db1,db2,db3/?replicaSet=rs0'",
			`shardway mongo explain --uri mongodb://mongos1,mongos2,localhost --predicate 'host == "localhost"'`,
			"shardway mongo explain --read-preference secondary --tags zone=a --max-staleness 90s"),
	}
	c.Flags().StringVar(&uri, "uri", "", "of the deployment, as the driver takes it (or SHARDWAY_MONGODB_URI)")
	f.add(c, selection.ModePrimary)
	return a.does(c, func(ctx context.Context, _ []string) error {
		w, err := f.read()
		if err != nil {
			return err
		}
		d, err := readDeployment(uri)
		if err != nil {
			return err
		}
		if err := d.settle(&w, &f); err != nil {
			return err
		}
		v, err := d.explain(ctx, w)
		if err != nil {
			return d.redact(err)
		}
		if err := a.emit(v, func(p *page) { p.deployment(v) }); err != nil {
			return err
		}
		return d.redact(v.none)
	})
}

// explain looks at the deployment until its servers have answered, one suits,
// or the time is up.
func (d *deployment) explain(ctx context.Context, w wanted) (v deploymentView, err error) {
	client, err := mongoshard.Connect(ctx, d.options, mongoshard.Config{})
	if err != nil {
		return v, usage(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWithin)
		defer cancel()
		err = errors.Join(err, client.Disconnect(ctx))
	}()
	look := func() (topology.Set, error) { return mongoshard.Servers(client) }
	return d.watch(ctx, look, w)
}

// watch looks again and again.
func (d *deployment) watch(ctx context.Context, look func() (topology.Set, error), w wanted) (v deploymentView, err error) {
	began := time.Now()
	timeout := time.NewTimer(d.timeout)
	defer timeout.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	request := selection.Request{Criteria: w.criteria, LocalThreshold: w.threshold}
	for ended := false; ; {
		set, err := look()
		if err != nil {
			return v, err
		}
		e, err := selection.Explain(set, request)
		if err != nil {
			return v, usage(err)
		}
		_, chosen := e.Chosen()
		if ended || set.Len() == 0 || chosen && answered(set) {
			v = deploymentView{Deployment: d.name, Kind: set.Kind().String(), choiceView: viewChoice(e, w, true), Note: note(set, w)}
			if v.none != nil {
				v.none = d.failed(w, e, time.Since(began), ended)
			}
			return v, nil
		}
		select {
		case <-ctx.Done():
			return v, ctx.Err()
		case <-timeout.C:
			ended = true
		case <-tick.C:
		}
	}
}

// answered reports whether every server was checked, with success or without.
func answered(set topology.Set) bool {
	if set.Kind() == topology.KindLoadBalanced {
		return true
	}
	for _, s := range set.Servers() {
		if !s.Role.Available() && s.Err == nil || s.Role.Readable() && !s.AverageRTT.Known() {
			return false
		}
	}
	return true
}

func note(set topology.Set, w wanted) string {
	switch {
	case set.Kind() == topology.KindLoadBalanced:
		return "a load balancer chooses itself: no criteria are asked"
	case set.Kind() == topology.KindSharded && !w.criteria.Predicate() && w.criteria.Mode() != selection.ModePrimary:
		return "behind mongos the read preference is for the shards: every mongos suits"
	}
	return ""
}

// failed is the error of an application's operation in the same place.
func (d *deployment) failed(w wanted, e selection.Explanation, waited time.Duration, ended bool) error {
	none := &selection.Error{Explanation: w.named(e), Waited: waited}
	if ended {
		none.Cause = selection.ErrTimeout
	}
	return &hinted{
		err:  &mongoshard.Error{Deployment: d.name, Err: none, Strangers: d.strangers.list(d.options)},
		hint: "the table names the step that dropped each server; --read-preference nearest leaves nobody out",
	}
}

func (p *page) deployment(v deploymentView) {
	p.line("deployment %s, %s", v.Deployment, v.Kind)
	p.line("criteria %s; latency window %vms", v.Criteria, v.LocalThreshold)
	var rows [][]string
	for _, m := range v.Members {
		tags := serverView{Tags: m.Tags}.String()
		if tags == "" {
			tags = ",-"
		}
		rows = append(rows, []string{m.Address, m.role(), tags[1:], m.trip(), m.lag(), strconv.FormatInt(m.InFlight, 10), m.fate()})
	}
	p.table([]string{"server", "role", "tags", "round trip", "staleness", "in flight", "choice"}, rows)
	if v.Note != "" {
		p.line("%s", v.Note)
	}
}

// usage makes errors of options and criteria those of the command line.
func usage(err error) error {
	var option *mongoshard.OptionError
	var invalid *selection.InvalidError
	if errors.As(err, &option) || errors.As(err, &invalid) {
		return usagef("%w", err)
	}
	return err
}
