package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

// shardServersView is the JSON form of the servers of one shard.
type shardServersView struct {
	Shard string `json:"shard"`
	choiceView
	Unlisted []unlistedView `json:"not_in_map"`      // what its servers tell of
	Error    string         `json:"error,omitempty"` // why its servers are not known
	err      error
}

func serversCommand(a *app) *cobra.Command {
	var f criteriaFlags
	var watch bool
	var interval string
	c := &cobra.Command{
		Use: "servers [SHARD] --map MAP", Short: "Show the servers of shards: role, tags, round trip, staleness, and who would be chosen", Args: arguments("[SHARD]"),
		Long: "Checks every server of a shard, or of all shards of the map, with the login of the\n" +
			"shards, whose rights \"shardway grants ENGINE --prober\" prints. In flight are operations\n" +
			"of the asking process, so this tool shows 0 where it has none.\n" +
			"Addresses that servers tell of and the map does not have are shown as not in the map; this\n" +
			"tool never connects to them, as its login would go to whoever is there.\n" +
			"The exit code is 5 when a shard has no server that suits the criteria, and says why.\n" +
			"--watch goes on until Ctrl-C; it then has no such exit code.\n\n" + criteriaHelp,
		Example: example("shardway servers --map customers", "shardway servers eu1 --map customers --watch",
			"shardway servers eu1 --map customers --read-preference secondary --tags zone=a --max-staleness 30s"),
	}
	mapFlag(c)
	f.add(c, selection.ModeNearest)
	c.Flags().BoolVar(&watch, "watch", false, "show them again and again until Ctrl-C")
	c.Flags().StringVar(&interval, "interval", "2s", "with --watch: time between two checks of a server, at least "+topology.MinHeartbeat.String())
	return a.withStore(c, func(ctx context.Context, s *session, args []string) error {
		w, err := f.read()
		if err != nil {
			return err
		}
		every, err := parseLength("--interval", interval, topology.MinHeartbeat)
		if err != nil {
			return err
		}
		return s.showServers(ctx, args, w, every, watch)
	})
}

func (s *session) showServers(ctx context.Context, args []string, w wanted, every time.Duration, watch bool) (err error) {
	m, err := s.shardMap(ctx)
	if err != nil {
		return err
	}
	router, err := shardway.Open(ctx, s.global, shardway.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, router.Close()) }()
	handle, err := router.Map(ctx, m.Name)
	if err != nil {
		return err
	}
	if !watch {
		every = answerWithin
	}
	db, err := s.servers(handle, w, every)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	names := args
	if len(args) == 0 {
		shards, err := handle.Shards(ctx)
		if err != nil {
			return err
		}
		for _, sh := range shards {
			names = append(names, sh.Name)
		}
	}
	if watch {
		return s.watchServers(ctx, db, names, w, every)
	}
	views := lookAtAll(ctx, db, names, w)
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(args) > 0 && views[0].err != nil {
		return views[0].err
	}
	if err := s.emit(views, func(p *page) { p.shardServers(views) }); err != nil {
		return err
	}
	var wrong []error
	for _, v := range views {
		switch {
		case v.err != nil:
			wrong = append(wrong, fmt.Errorf("shard %q: %w", v.Shard, v.err))
		case v.none != nil:
			wrong = append(wrong, fmt.Errorf("shard %q: %w", v.Shard, v.none))
		}
	}
	return errors.Join(wrong...)
}

// watchServers shows the servers until ctx ends. Errors are shown, not returned:
// what is gone may come back.
func (s *session) watchServers(ctx context.Context, db *lookout, names []string, w wanted, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		views := lookAtAll(ctx, db, names, w)
		if ctx.Err() != nil {
			return nil // Ctrl-C is how this ends
		}
		for _, v := range views {
			if errors.Is(v.err, shardway.ErrShardNotFound) {
				return v.err
			}
		}
		err := s.emit(views, func(p *page) {
			p.WriteString(clearing(s.out))
			p.line("%s, every %v until Ctrl-C", instant(time.Now()), every)
			p.shardServers(views)
			p.line("")
		})
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// clearing is what clears a terminal; nothing for other outputs.
func clearing(out any) string {
	f, ok := out.(*os.File)
	if !ok {
		return ""
	}
	if st, err := f.Stat(); err != nil || st.Mode()&os.ModeCharDevice == 0 {
		return ""
	}
	return "\x1b[H\x1b[2J"
}

// lookAtAll checks the servers of several shards, a few at a time.
func lookAtAll(ctx context.Context, db *lookout, names []string, w wanted) []shardServersView {
	const atOnce = 16
	views := make([]shardServersView, len(names))
	seats := make(chan struct{}, atOnce)
	var running sync.WaitGroup
	for i, name := range names {
		seats <- struct{}{}
		running.Go(func() {
			defer func() { <-seats }()
			e, err := lookAt(ctx, db, name)
			if err != nil {
				views[i] = shardServersView{
					Shard: name, Error: oneLine(message(err)), err: err,
					choiceView: choiceView{Members: []memberView{}}, Unlisted: []unlistedView{},
				}
				return
			}
			views[i] = shardServersView{Shard: name, choiceView: viewChoice(e, w, false), Unlisted: viewUnlisted(e)}
		})
	}
	running.Wait()
	return views
}

func (p *page) shardServers(views []shardServersView) {
	var rows [][]string
	for _, v := range views {
		for _, m := range v.Members {
			tags := serverView{Tags: m.Tags}.String()
			if tags == "" {
				tags = ",-"
			}
			rows = append(rows, []string{v.Shard, m.Address, m.role(), tags[1:], m.trip(), m.lag(), strconv.FormatInt(m.InFlight, 10), m.fate()})
		}
		for _, u := range v.Unlisted {
			rows = append(rows, []string{v.Shard, u.Address, "-", "-", "-", "-", "-", "not in the map (" + u.source() + ")"})
		}
		if v.err != nil {
			rows = append(rows, []string{v.Shard, "-", "-", "-", "-", "-", "-", v.Error})
		}
	}
	p.table([]string{"shard", "server", "role", "tags", "round trip", "staleness", "in flight", "latency window"}, rows)
	for _, v := range views {
		if v.Conflict != "" {
			p.line("shard %s: %s", v.Shard, v.Conflict)
		}
	}
}
